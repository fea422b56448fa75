// Prints the command of each policy, one a line: argument 1 is the answer of /admin/v1/policies,
// 2 that of /admin/v1/config, 3 the origin of the page.
import { attributesOf, baseOf, callOf, commandOf, costOf, unitsOf } from "./call.js";

const [policies, config, origin] = [JSON.parse(process.argv[2]).policies, JSON.parse(process.argv[3]), new URL(process.argv[4])];
for (const policy of policies) {
  const given = {
    key: "o'neil $HOME", keys: Object.fromEntries(attributesOf(policy).map((name) => [name, "192.0.2.1"])),
    costs: Object.fromEntries(unitsOf(policy).map((unit) => [unit, costOf(policy, unit)])),
  };
  process.stdout.write(`${commandOf(config.api, baseOf(config.api, origin), callOf(policy, given))}\n`);
}
