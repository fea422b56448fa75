import { attributesOf, baseOf, callOf, commandOf, costOf, describe, hasSlots, isSteady, needsKey, sentence, unitsOf, visible } from "./call.js";

const byId = (id) => document.getElementById(id);
const form = byId("form"), login = byId("login"), fields = byId("fields");
const bar = byId("bar"), level = byId("level"), verdict = byId("verdict"), answer = byId("answer"), copy = byId("copy");
const maxTimer = 2 ** 31 - 1; // longer timers fire at once
let refill = 0; // the timer that looks again when a window has passed
let policies = [], api = { url: "", socket: "", token: false };
let operator = ""; // the operator's token; it is kept nowhere else

// Data. It is the operators', so a token is asked for where they have one.

async function get(path) {
  const response = await fetch(`/admin/v1/${path}`, { headers: bearer(operator) });
  const body = await response.json();
  if (response.ok) return body;
  throw Object.assign(new Error(body.detail), { status: response.status });
}

const bearer = (token) => (token === "" ? {} : { Authorization: `Bearer ${token}` });

async function load() {
  try {
    const config = await get("config"); // alone: a wrong token counts once
    const [rules] = await Promise.all([get("policies"), loadTop()]);
    byId("version").textContent = `Version ${config.version}.`;
    byId("reload").textContent = config.reload.error;
    api = config.api;
    policies = rules.policies;
    start();
  } catch (error) {
    login.hidden = !(error.status === 401 || error.status === 403);
    byId("problem").textContent = error.message;
  }
}

async function loadTop() {
  const { top } = await get("stats");
  byId("top").hidden = top.length === 0;
  rows("denied", top.map((t) => [t.policy, visible(t.key), t.denied]));
}

login.addEventListener("submit", (event) => {
  event.preventDefault();
  operator = login.token.value;
  load();
});

// The page, once there is data.

function start() {
  login.hidden = true;
  byId("problem").textContent = "";
  byId("main").hidden = false;
  form.policy.replaceChildren(...policies.map((p) => element("option", p.name, { value: p.name })));
  rows("limits", policies.flatMap((p) => p.limits.map((l) => [p.name, l.name, describe(l)])));
  form.take.disabled = api.url !== "";
  byId("client").hidden = !api.token || form.take.disabled;
  byId("elsewhere").hidden = !form.take.disabled;
  choose();
}

const chosen = () => policies[form.policy.selectedIndex];

function rows(id, list) {
  byId(id).replaceChildren(...list.map((cells) => {
    const row = element("tr");
    row.replaceChildren(...cells.map((text) => element("td", text)));
    return row;
  }));
}

function element(tag, text = "", properties = {}) {
  const made = Object.assign(document.createElement(tag), properties);
  if (text !== "") made.textContent = text; // text, never HTML: keys and names are anybody's
  return made;
}

// Fields for what the chosen policy needs.
let inputs = { keys: [], costs: [] };

function choose() {
  const policy = chosen();
  form.key.disabled = !needsKey(policy);
  inputs = {
    keys: attributesOf(policy).map((name) => [name, element("input", "", { value: name === "ip" ? "192.0.2.1" : "example", maxLength: 256, autocomplete: "off" })]),
    costs: unitsOf(policy).map((unit) => [unit, element("input", "", { type: "number", min: 0, max: 2147483647, step: 1, value: costOf(policy, unit), required: true })]),
  };
  fields.replaceChildren(...[...inputs.keys, ...inputs.costs].map(([name, input]) => {
    const label = element("label", `${name} `);
    label.append(element("span", input.type === "number" ? "cost" : "attribute", { className: "quiet" }), input);
    return label;
  }));
  clear(form.take.disabled ? "" : "Press Take. Press it again before the bar has refilled.", false);
  update();
}

function call() {
  const values = (list, value) => Object.fromEntries(list.map(([name, input]) => [name, value(input)]));
  return callOf(chosen(), {
    key: form.key.value, keys: values(inputs.keys, (i) => i.value), costs: values(inputs.costs, (i) => i.valueAsNumber),
  });
}

function update() {
  byId("command").textContent = commandOf(api, baseOf(api, location), call());
}

form.policy.addEventListener("change", choose);
form.addEventListener("input", update);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask(call());
});

// Asking, and the meter.

async function ask({ path, body }) {
  clearTimeout(refill);
  try {
    const response = await fetch(path, { method: "POST", body: JSON.stringify(body), headers: bearer(form.token.value) });
    const decision = await response.json();
    if (response.ok) show(decision, body); else clear(decision.detail, true);
  } catch {
    clear("weir does not answer. Is it still running?", true);
  }
  loadTop().catch(() => {}); // the answer is what counts
}

function show(d, check) {
  tell(sentence(d), !d.allowed);
  answer.hidden = false;
  answer.textContent = JSON.stringify(d, null, 2);
  bar.hidden = false;
  bar.setAttribute("aria-valuemax", d.limit);
  bar.setAttribute("aria-valuenow", d.remaining);
  drain(d.limit > 0 ? Math.max(0, d.remaining / d.limit) : 0);
  if (d.expires_in_ms > 0) {
    refill = setTimeout(clear, d.expires_in_ms, "The reservation has expired.", false);
  } else if (hasSlots(chosen()) || d.reset_after_ms <= 0) {
    return;
  } else if (isSteady(chosen())) {
    fill(d.reset_after_ms);
  } else if (d.reset_after_ms <= maxTimer) {
    refill = setTimeout(ask, d.reset_after_ms, { path: "/v1/check", body: { ...check, cost: 0, peek: true } });
  }
}

function tell(text, refused) {
  verdict.textContent = text;
  verdict.classList.toggle("refused", refused);
  bar.classList.toggle("refused", refused);
}

// Without an answer there is nothing to show on the meter.
function clear(text, failed) {
  clearTimeout(refill);
  tell(text, failed);
  answer.hidden = true;
  bar.hidden = true;
  bar.removeAttribute("aria-valuenow");
  drain(0);
}

function drain(share) {
  level.style.transition = "none";
  level.style.transform = `scaleX(${share})`;
  level.getBoundingClientRect(); // lets the drained level be drawn before it refills
}

function fill(ms) {
  level.style.transition = `transform ${ms}ms linear`;
  level.style.transform = "scaleX(1)";
}

if (navigator.clipboard) {
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(byId("command").textContent);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Select it";
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  });
}

load();
