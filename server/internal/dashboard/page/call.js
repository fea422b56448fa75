// What a call of a policy looks like, and the command that makes it: everything but the page.
// Policies are as GET /admin/v1/policies has them, api as GET /admin/v1/config has it.

const distinct = (list) => [...new Set(list)];

// The attributes that limits are by, the units that they count, and whether one is by the key.
export const attributesOf = (policy) => distinct(policy.limits.map((l) => l.by).filter((by) => by !== ""));
export const unitsOf = (policy) => distinct(policy.limits.map((l) => l.unit));
export const needsKey = (policy) => policy.limits.some((l) => l.by === "");

// Slots are reserved; everything else is checked.
export const hasSlots = (policy) => policy.limits.some((l) => l.algorithm === "concurrency");

// Whether units come back evenly, so that a meter may show it.
export const isSteady = (policy) => policy.limits.every((l) => l.algorithm === "gcra" || l.algorithm === "token_bucket");

// A cost that shows on the meter: one slot, or 40 % of what the tightest limit admits at once.
export function costOf(policy, unit) {
  if (hasSlots(policy)) return 1;
  return Math.max(1, Math.floor(0.4 * Math.min(...policy.limits.filter((l) => l.unit === unit).map((l) => l.burst))));
}

const holdMs = 30000;

// The call that takes from a policy: given has key, keys (by attribute) and costs (by unit).
export function callOf(policy, given) {
  const body = { policy: policy.name };
  if (needsKey(policy)) body.key = given.key;
  const attributes = attributesOf(policy), units = unitsOf(policy);
  if (attributes.length > 0) body.keys = Object.fromEntries(attributes.map((name) => [name, given.keys[name]]));
  if (units.length > 1 || units[0] !== "requests") body.cost = Object.fromEntries(units.map((unit) => [unit, given.costs[unit]]));
  else if (given.costs.requests !== 1) body.cost = given.costs.requests;
  if (!hasSlots(policy)) return { path: "/v1/check", body };
  return { path: "/v1/reserve", body: { ...body, ttl_ms: holdMs } };
}

// Where calls are answered. The API says so if it is not where the page comes from. On a Unix
// socket the host does not matter.
export function baseOf(api, location) {
  if (api.socket !== "") return "http://localhost";
  if (api.url === "") return location.origin;
  const url = new URL(api.url);
  if (url.hostname === "0.0.0.0" || url.hostname === "[::]") url.hostname = location.hostname; // listens on every address
  return url.origin;
}

// The command that makes a call from a shell.
export function commandOf(api, base, call) {
  const words = ["curl", "-s"];
  if (api.socket !== "") words.push("--unix-socket", quote(api.socket));
  if (api.token) words.push("-H", '"Authorization: Bearer $TOKEN"');
  words.push(quote(base + call.path), "-d", quote(JSON.stringify(call.body)));
  return words.join(" ");
}

const quote = (text) => /^[\w./:@%-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

// A limit in a few words.
export function describe(l) {
  const unit = l.unit === "requests" ? "" : ` ${l.unit}`;
  let text = l.algorithm === "concurrency" ? `${l.rate}${unit} at once` : `${l.rate}${unit} per ${l.per}`;
  if (l.burst !== l.rate) text += `, burst ${l.burst}`;
  text += `, for each ${l.by === "" ? "key" : l.by}`;
  return l.mode === "enforce" ? text : `${text}, ${l.mode === "off" ? "off" : `in ${l.mode}`}`;
}

// A key with its invisible characters written out: controls, and what changes the direction of text.
export const visible = (key) => key.replace(/\p{C}/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

// An answer in a sentence.
export function sentence(d) {
  const held = d.expires_in_ms > 0 ? ` Held for ${d.expires_in_ms / 1000} s.` : "";
  if (d.allowed) return `Admitted. ${d.remaining} of ${d.limit} remain.${held}`;
  if (d.retry_after_ms < 0) return `Refused by ${d.limited_by} (${d.reason}). Waiting cannot help.`;
  return `Refused by ${d.limited_by} (${d.reason}). Retry in ${d.retry_after_ms} ms.`;
}
