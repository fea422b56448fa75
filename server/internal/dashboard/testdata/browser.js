// A browser, as far as the page needs one: elements by id, forms with fields, text. It loads the
// page with answers of its own, does what somebody would do, and prints what they see.
import { readFileSync } from "node:fs";

class Element {
  constructor(tag, id) {
    Object.assign(this, { tag, id, hidden: false, disabled: false, value: "", children: [], style: {}, attributes: {}, listeners: {}, classes: new Set() });
    this.classList = { toggle: (name, on) => (on ? this.classes.add(name) : this.classes.delete(name)) };
  }
  get textContent() { return this.text ?? this.children.map((c) => c.textContent).join(" "); }
  set textContent(text) { this.text = String(text); this.children = []; }
  get valueAsNumber() { return Number(this.value); }
  get selectedIndex() { return Math.max(0, this.children.findIndex((c) => c.value === this.value)); }
  append(...list) { this.children.push(...list); }
  replaceChildren(...list) { this.text = undefined; this.children = list; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  removeAttribute(name) { delete this.attributes[name]; }
  getBoundingClientRect() {}
  addEventListener(type, listener) { (this.listeners[type] ??= []).push(listener); }
  fire(type) { for (const l of this.listeners[type] ?? []) l({ preventDefault() {} }); }
}

// Elements that have an id, and fields of forms, as index.html has them.
const elements = {};
let form = null;
for (const [, tag, rest] of readFileSync("index.html", "utf8").matchAll(/<(\w+)([^>]*)>|<\/form>/g)) {
  const attribute = (name) => rest?.match(new RegExp(` ${name}="([^"]*)"`))?.[1];
  const made = new Element(tag, attribute("id"));
  made.hidden = / hidden/.test(rest ?? "");
  made.value = attribute("value") ?? "";
  if (made.id !== undefined) elements[made.id] = made;
  if (tag === "form") form = made;
  else if (tag === undefined) form = null;
  else if (form !== null && attribute("name") !== undefined) form[attribute("name")] = made;
}

globalThis.document = {
  getElementById: (id) => elements[id] ?? (() => { throw new Error(`index.html has no element ${id}`); })(),
  createElement: (tag) => new Element(tag),
};
globalThis.location = { origin: "http://127.0.0.1:8080", hostname: "127.0.0.1" };
Object.defineProperty(globalThis, "navigator", { value: {} });
globalThis.setTimeout = (_, ms) => { print(`timer: ${ms} ms`); return 1; };
globalThis.clearTimeout = () => {};

const print = (text) => process.stdout.write(`${text}\n`);
const settled = async () => { for (let i = 0; i < 50; i++) await Promise.resolve(); };

let answers = {}; // path → [status, body]
globalThis.fetch = async (path, { method = "GET", body, headers }) => {
  const bearer = headers.Authorization === undefined ? "" : ` with ${headers.Authorization}`;
  print(`> ${method} ${path}${bearer}${body === undefined ? "" : ` ${body}`}`);
  const answer = answers[path];
  if (answer === undefined) throw new TypeError("fetch failed");
  return { ok: answer[0] === 200, status: answer[0], json: async () => answer[1] };
};

function look() {
  const shown = (id) => (elements[id].hidden ? "-" : elements[id].textContent);
  print(`problem: ${shown("problem")}; reload: ${shown("reload")}; asks for a token: ${!elements.login.hidden}; page: ${!elements.main.hidden}`);
  if (elements.main.hidden) return;
  print(`fields: ${elements.fields.children.map((c) => c.textContent).join("; ")}; key: ${!elements.form.key.disabled}; token: ${!elements.client.hidden}; take: ${!elements.form.take.disabled}`);
  print(`command: ${shown("command")}`);
  print(`meter: ${elements.bar.hidden ? "none" : `${elements.bar.attributes["aria-valuenow"]} of ${elements.bar.attributes["aria-valuemax"]}, ${elements.level.style.transform}`}; verdict: ${shown("verdict")}${elements.verdict.classes.has("refused") ? " (red)" : ""}`);
  if (!elements.top.hidden) print(`refused most: ${shown("denied")}`);
}

const step = async (title, act) => {
  print(`\n# ${title}`);
  await act();
  await settled();
  look();
};
const { script } = await import("./script.js");
const daemon = { answer: (map) => { answers = { ...answers, ...map }; } };
await script({ step, daemon, elements, load: () => import("./weir.js") });
