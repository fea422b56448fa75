// What somebody does with the page, and what the daemon answers.
const limit = (more) => ({ name: "x", rate: 100, per: "1s", burst: 100, algorithm: "gcra", by: "", unit: "requests", mode: "enforce", ...more });
const policies = [
  { name: "default", limits: [limit({ name: "default" })] },
  { name: "it's", limits: [limit({ by: "ip", burst: 10 }), limit({ unit: "tokens", per: "day", algorithm: "fixed_window", mode: "shadow" })] },
  { name: "slots", limits: [limit({ algorithm: "concurrency", rate: 2, burst: 2, per: "", by: "user" })] },
];
const api = { url: "", socket: "", token: false };
const config = (more) => [200, { version: "v1", reload: { error: "" }, api: { ...api, ...more } }];
const stats = (...top) => [200, { top }];
const refused = [401, { detail: "missing admin token" }];
const admitted = { allowed: true, limit: 100, remaining: 60, reset_after_ms: 400, retry_after_ms: 0 };

export async function script({ step, daemon, elements, load }) {
  const { form, login } = elements;
  const daemons = { "/admin/v1/config": refused, "/admin/v1/policies": refused, "/admin/v1/stats": refused };
  daemon.answer(daemons);
  await step("operators have tokens", load);
  daemon.answer({ "/admin/v1/config": config(), "/admin/v1/policies": [200, { policies }], "/admin/v1/stats": stats() });
  await step("a token is entered", () => { login.token.value = "secret"; login.fire("submit"); });

  daemon.answer({ "/v1/check": [200, admitted] });
  await step("take", () => form.fire("submit"));
  daemon.answer({ "/v1/check": [400, { detail: "the key is too long" }] });
  await step("an error clears the meter", () => form.fire("submit"));
  daemon.answer({ "/v1/check": [200, { ...admitted, allowed: false, limited_by: "default", reason: "exhausted", remaining: 0, retry_after_ms: 400 }], "/admin/v1/stats": stats({ policy: "default", key: "<img src=x>\u202e\n", denied: 3 }) });
  await step("a refusal", () => form.fire("submit"));
  daemon.answer({ "/v1/check": undefined });
  await step("the daemon is gone", () => form.fire("submit"));

  const choose = (name) => { form.policy.value = name; form.policy.fire("change"); };
  await step("a policy by an attribute and with another unit", () => choose("it's"));
  daemon.answer({ "/v1/check": [200, admitted] });
  await step("take from it", () => form.fire("submit"));
  daemon.answer({ "/v1/reserve": [200, { ...admitted, limit: 2, remaining: 1, reset_after_ms: -1, expires_in_ms: 30000 }] });
  await step("a policy of slots", () => choose("slots"));
  await step("reserve", () => form.fire("submit"));

  const again = (more) => () => { daemon.answer({ "/admin/v1/config": config(more) }); login.fire("submit"); };
  await step("clients have tokens", again({ token: true }));
  await step("one is entered", () => { form.token.value = "client"; form.fire("submit"); });
  await step("the API is on another address", again({ url: "https://0.0.0.0:9000" }));
  await step("the API is on a Unix socket, and so is the page", again({ socket: "/run/my weir/http.sock" }));
  await step("the API is on a Unix socket, and the page is not", again({ url: "http://localhost", socket: "/run/weir.sock" }));
}
