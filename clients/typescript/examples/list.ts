// Prints the controllers of a running manager: list ADDRESS CA_FILE TOKEN_FILE.
import { connect, Phase } from "../src/index.js";

const [address = "", caFile = "", tokenFile = ""] = process.argv.slice(2);
const client = connect(address, { caFile, tokenFile });
const { controllers } = await client.controllers.listControllers({});
for (const { name, phase } of controllers) {
  console.log(name.padEnd(50), Phase[phase]);
}
client.close();
