// Prints the identity of the leader. Usage: leader API_SERVER CA_FILE TOKEN_FILE. In a pod, inCluster() returns the three
// values.
import { ApiServer, Finder, Follower } from "../src/index.js";

const [server = "", caFile = "", tokenFile = ""] = process.argv.slice(2);
const pod = { caFile, tokenFile };
const finder = new Finder({
  leases: new ApiServer(server, pod),
  options: { tokenFile: pod.tokenFile },
  clusterCaFile: pod.caFile,
});
const follower = new Follower(finder);
const answer = await follower.call(({ leader }, call) => leader.getLeader({}, call), { timeoutMs: 60_000 });
console.log(answer.leader?.holderIdentity ?? "");
follower.close();
