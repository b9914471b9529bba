/* What whoever has logged in may do, as the daemon decides it (`supervisor.policy.principals`): a
   button that would be refused is not to be pressed. */

/** Whether a principal may do what is of a scope, to a module as a whole if one is named. */
export function may(principal, scope, module = null) {
  if (!principal.scopes.includes(scope)) return false;
  return module === null || principal.modules.some((glob) => covers(glob, module));
}

function covers(glob, module) {
  const subject = module.replace(/[%.:]/g, quoted);
  const parts = glob.split("*").map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`, "s").test(subject);
}

function quoted(char) {
  return `%${char.charCodeAt(0).toString(16).toUpperCase()}`;
}
