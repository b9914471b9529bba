/* What modules handed over: pictures, sound and text to look at, a word about the rest.

   A file of a module's may be a page with scripts, or a picture that has some. So it is shown as a
   picture, as sound, or as text, where nothing of it runs; all else is a download. */

import { get, path, request } from "../api.js";
import { block, count, el, fill, inFrame, keyed, notice, printable, said, write } from "../dom.js";
import { ago, moment, size } from "../format.js";
import { followed } from "../pace.js";

const PAGE = 48;
const PICTURE = /^image\/(png|jpeg|gif|webp|svg\+xml)\b/;
const TEXT = /^(text\/(plain|markdown|csv)|application\/(json|x-ndjson|yaml|toml))\b/;
/** A larger picture is for who asks for it: a browser unpacks it whole. */
const PICTURE_BYTES = 8 << 20;
const TEXT_BYTES = 64 << 10;

export function render(into, page) {
  const summary = el("p", { class: "summary" });
  const trouble = el("div", {});
  const filter = el("input", { type: "search", placeholder: "name, type, module or session", "data-filter": true, spellcheck: "false", autocomplete: "off" });
  const cards = el("ul", { class: "cards", "aria-label": "Assets, the newest first" });
  const empty = el("p", { class: "empty", hidden: true });
  const more = el("button", { type: "button", hidden: true }, "Show older ones");
  const session = page.query.get("session") ?? undefined;
  const module = page.query.get("module") ?? undefined;
  into.append(
    el("header", { class: "head" }, el("h1", {}, "Assets"), summary,
      session || module ? el("p", { class: "daemon" }, "of ", said(session ?? module, 100), " · ", el("a", { href: "#/assets" }, "all assets")) : null),
    trouble,
    el("div", { class: "tools", role: "search" }, el("label", {}, el("span", {}, "Filter"), filter)),
    cards, empty, el("p", { class: "older" }, more),
  );

  let listed = null;
  let most = PAGE;
  const draw = inFrame(() => {
    if (listed === null) return;
    const fitting = chosen(listed.assets, filter.value);
    keyed(cards, fitting.slice(0, most), (one) => one.asset, card, () => {});
    empty.hidden = Boolean(fitting.length);
    write(empty, listed.assets.length ? "No asset fits the filter." : "No assets: no module has handed over a file.");
    const left = listed.left_out ? `, and ${listed.left_out} older` : "";
    write(summary, `${count(listed.assets.length, "asset")}${left}`);
    more.hidden = fitting.length <= most;
  });
  const ask = async () => {
    listed = await get(["assets"], { session_id: session, module }, { signal: page.signal });
    listed.assets.reverse();
    draw();
  };
  const follow = followed(page, trouble, ask, (entry) => entry.event === "artifact:write", 1000);
  filter.addEventListener("input", draw);
  more.addEventListener("click", () => {
    most += PAGE;
    draw();
  });
  return () => {
    follow();
    draw.cancel();
  };
}

function chosen(assets, words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return assets.filter((one) => {
    const text = `${one.asset_id} ${one.asset} ${one.media_type} ${one.module} ${one.session_id ?? ""}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

function card(asset) {
  const where = path(["assets", asset.asset, "content"]);
  const facts = [said(asset.media_type, 80), ` · ${size(asset.size)}`];
  return el("li", { class: "card", "data-asset": asset.asset },
    el("div", { class: "shown" }, shown(asset, where)),
    el("div", { class: "words" },
      el("h2", {}, said(asset.asset_id, 100)),
      el("p", { class: "note" }, facts),
      el("p", { class: "note" }, el("a", { href: `#/modules/${encodeURIComponent(asset.module)}` }, said(asset.module, 60)), ".", said(asset.op, 60),
        asset.session_id ? [" in ", el("a", { href: `#/sessions/${encodeURIComponent(asset.session_id)}` }, said(asset.session_id, 60))] : null,
        el("span", { title: moment(asset.ts) }, ` · ${ago(asset.ts)}`)),
      el("p", { class: "note" }, el("a", { href: where, download: asset.asset_id }, "Download"), el("span", { class: "path" }, said(asset.path, 200))),
      asset.problem ? notice(asset.problem, "warn") : null,
    ),
  );
}

function shown(asset, where) {
  const type = String(asset.media_type).toLowerCase();
  if (asset.problem || asset.size === null) return placeholder(asset);
  if (PICTURE.test(type)) return picture(asset, where);
  if (type.startsWith("audio/")) return el("audio", { controls: true, preload: "none", src: where, "aria-label": printable(asset.asset_id) });
  if (type.startsWith("video/")) return el("video", { controls: true, preload: "none", src: where, "aria-label": printable(asset.asset_id) });
  if (TEXT.test(type)) return asking("Show the text", (into) => readText(asset, into));
  return placeholder(asset);
}

function picture(asset, where) {
  const made = () => {
    const image = el("img", { src: where, alt: printable(asset.asset_id), loading: "lazy", decoding: "async" });
    image.addEventListener("error", () => image.replaceWith(placeholder(asset, "cannot be shown")));
    return image;
  };
  if (asset.size <= PICTURE_BYTES) return made();
  return asking(`Show the picture (${size(asset.size)})`, (into) => fill(into, made()));
}

function placeholder(asset, words = asset.placeholder) {
  return el("p", { class: "placeholder" }, said(words || asset.media_type, 200));
}

function asking(label, show) {
  const into = el("div", { class: "asked" });
  const button = el("button", { type: "button", class: "small", on: { click: () => show(into) } }, label);
  return fill(into, button);
}

async function readText(asset, into) {
  try {
    const range = asset.size > TEXT_BYTES ? { Range: `bytes=0-${TEXT_BYTES - 1}` } : {};
    const response = await request("GET", path(["assets", asset.asset, "content"]), { headers: range });
    const text = new TextDecoder().decode(await response.arrayBuffer());
    const left = asset.size - TEXT_BYTES;
    fill(into, block(text, { label: printable(asset.asset_id), short: 1500 }), left > 0 ? el("p", { class: "rest" }, `${size(left)} more: download it to see them.`) : null);
    into.querySelector("pre").focus();
  } catch (error) {
    fill(into, notice(error.message));
  }
}
