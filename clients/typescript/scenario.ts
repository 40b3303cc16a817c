// Runs against a live manager what the clients in the other languages run as well: who leads, list, follow the leader,
// disable for some seconds, watch it come back, and the events of it all. With an API server, the leader is found by its
// Lease.
import { Code, ConnectError } from "@connectrpc/connect";

import {
  type AdminClient,
  ApiServer,
  connect,
  DesiredSource,
  EventType,
  Finder,
  Follower,
  Phase,
  type WatchControllersResponse,
} from "./src/index.js";

const REASON = "the scenario of the TypeScript client";
const TIMEOUT = { timeoutMs: 60_000 };

function expect(holds: boolean, message: string, found: unknown): asserts holds {
  if (!holds) {
    const shown = JSON.stringify(found, (_, value) => (typeof value === "bigint" ? value.toString() : value));
    throw new Error(`${message}: ${shown}`);
  }
}

async function leader(client: AdminClient): Promise<void> {
  const { leader } = await client.leader.getLeader({}, TIMEOUT);
  expect(leader !== undefined && leader.holderIdentity !== "" && leader.leading, "the replica called should lead", leader);
}

async function list(client: AdminClient, name: string): Promise<void> {
  const names: string[] = [];
  let pageToken = "";
  let total: number;
  do {
    const page = await client.controllers.listControllers({ pageSize: 10, pageToken }, TIMEOUT);
    names.push(...page.controllers.map((controller) => controller.name));
    ({ nextPageToken: pageToken, totalSize: total } = page);
  } while (pageToken !== "");
  expect(names.includes(name), `${name} should be listed`, names);
  expect(names.length === total && total >= 40, `${total} controllers should be listed`, names);
}

async function unknown(client: AdminClient, name: string): Promise<void> {
  try {
    await client.controllers.getController({ name: `${name}x` }, TIMEOUT);
  } catch (error) {
    const { code, message } = ConnectError.from(error);
    expect(code === Code.NotFound && message.includes(name), `NOT_FOUND that names ${name} was expected`, message);
    return;
  }
  throw new Error("an unknown name was found");
}

async function follow(_: AdminClient, name: string): Promise<void> {
  const options = { caFile, tokenFile };
  let finder = new Finder({ addresses: [address], options });
  if (server !== undefined) {
    finder = new Finder({ leases: new ApiServer(server, options), options });
    const found = await finder.replicas();
    const leads = found.candidates.filter((replica) => replica.leads && replica.identity === found.holder);
    expect(found.candidates.length === 1 && leads.length === 1, "one replica that leads was expected", found);
  }
  await new Follower(finder).call(async (leader, call) => {
    const { queues } = await leader.queues.listQueues({ filter: { controllers: [name] } }, call);
    const [queue] = queues;
    expect(queue !== undefined, `${name} should have a queue`, queues);
    // Only the leader answers this. Both are questions, so it is no matter that a second run asks both again.
    await leader.queues.getQueue({ name: queue.name }, call);
  }, TIMEOUT);
}

async function toggle(client: AdminClient, name: string): Promise<void> {
  const streams = new AbortController();
  const call = { ...TIMEOUT, signal: streams.signal };
  try {
    const watch = client.controllers.watchControllers({ filter: { names: [name] } }, call)[Symbol.asyncIterator]();
    const first = (await watch.next()).value?.update;
    expect(first?.case === "snapshot" && first.value.controllers.length === 1, "a snapshot was expected", first);
    const filter = { controllers: [name], types: [EventType.PHASE_CHANGED] };
    const events = client.events.streamEvents({ filter }, call)[Symbol.asyncIterator]();
    const start = (await events.next()).value?.item;
    expect(start?.case === "started" && start.value.logId !== "", "the start of the stream was expected", start);

    const request = { name, reason: REASON, duration: { seconds: 3n }, wait: true };
    const [controller] = (await client.controllers.disableController(request, TIMEOUT)).controllers;
    const order = controller?.desired?.override;
    const disabled = controller?.phase === Phase.DISABLED && order?.reason === REASON;
    expect(disabled && order?.expireTime !== undefined, "not disabled for a while", controller);

    await comesBack(watch);
    const wanted = new Set([Phase.DISABLED, Phase.RUNNING]);
    while (wanted.size > 0) {
      const { done, value } = await events.next();
      expect(!done, "phases that no event told of", [...wanted]);
      if (value.item.case === "event" && value.item.value.details.case === "phaseChanged") {
        wanted.delete(value.item.value.details.value.current);
      }
    }
  } finally {
    streams.abort();
  }
}

/** Returns when the controller was stopped and runs again because the flags say so. */
async function comesBack(watch: AsyncIterator<WatchControllersResponse>): Promise<void> {
  for (let stopped = false; ; ) {
    const { done, value } = await watch.next();
    expect(!done, "the watch ended", stopped);
    if (value.update.case !== "changed") {
      continue;
    }
    const controller = value.update.value;
    if (controller.phase === Phase.DISABLED) {
      stopped = true;
    } else if (stopped && controller.phase === Phase.RUNNING) {
      expect(controller.desired?.source !== DesiredSource.OVERRIDE, "the override should have ended", controller);
      return;
    }
  }
}

const [address = "", caFile = "", tokenFile = "", name = "deployment-controller", server] = process.argv.slice(2);
if (tokenFile === "") {
  console.error("usage: scenario ADDRESS CA_FILE TOKEN_FILE [CONTROLLER [API_SERVER]]");
  process.exit(2);
}
const client = connect(address, { caFile, tokenFile });
for (const [step, run] of Object.entries({
  leader,
  list,
  "an unknown name": unknown,
  "follow the leader": follow,
  "disable, watch, stream": toggle,
})) {
  try {
    await run(client, name);
  } catch (error) {
    console.error(`typescript scenario: ${step}: ${error}`);
    process.exit(1);
  }
  console.log(`typescript scenario: ${step}: ok`);
}
console.log("typescript scenario: ok");
process.exit();
