/* The button that ends the login of this browser. */

import { request } from "./api.js";
import { printable, set, write } from "./dom.js";

/** Show it to who has logged in; `done` is called when nobody is any more. */
export function logout(button, principal, done) {
  set(button, "title", `You are ${printable(principal.name)}`);
  button.hidden = false;
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const told = await (await request("POST", "logout")).json();
      if (told.logged_out) return done();
      write(button, "No login here");
      set(button, "title", "Whoever reaches this address needs none: it leads to the daemon's socket.");
    } catch (error) {
      if (error.isLogin) return done();
      set(button, "title", error.message);
      button.disabled = false;
    }
  });
}
