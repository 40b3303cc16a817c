import assert from "node:assert/strict";
import { createServer, type AddressInfo } from "node:net";
import { test } from "node:test";

import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { BinaryWriter } from "@bufbuild/protobuf/wire";
import { type CallOptions, Code, ConnectError } from "@connectrpc/connect";

import {
  type AdminClient,
  EventService,
  EventType,
  Finder,
  type FinderOptions,
  Follower,
  type FollowerOptions,
  LeaderService,
  type Lease,
  NoLeaderError,
  NotVouchedForError,
  QueueService,
  Severity,
  type StreamEventsRequest,
  type StreamEventsRequestSchema,
  type StreamEventsResponseSchema,
} from "../src/index.js";
import { Authority, serve } from "./fixtures.js";

const authority = new Authority("authority");

/** The ErrorInfo of a refusal. */
function notLeader(address: string, reason = "NOT_LEADER"): Uint8Array {
  const info = new BinaryWriter().uint32(10).string(reason).uint32(18).string("admin.coxswain.dev");
  if (address !== "") {
    info.uint32(26).fork().uint32(10).string("leader").uint32(18).string("b").join();
    info.uint32(26).fork().uint32(10).string("leader_address").uint32(18).string(address).join();
  }
  return info.finish();
}

type Past = { sequence: bigint; time: Timestamp; message: string };

/** An event so many seconds from now. */
function past(sequence: bigint, seconds: number, message: string): Past {
  return { sequence, time: timestampFromMs(Date.now() + seconds * 1_000), message };
}

/** Replicas on loopback, one of which leads. */
class Fleet {
  /** The index of who leads, or -1. */
  leader = 0;
  /** Whether the others know where. */
  known = true;
  addresses: string[] = [];
  calls: number[] = [];
  open: (() => number)[] = [];
  listed = 0;
  /** The authority that their Leases announce. */
  announced = "";
  /** What the leader answers in place of an answer. */
  fails: ConnectError | undefined;
  /** The leaders that requests to step down were for, and how far leadership moves before such a request. */
  expected: string[] = [];
  moves = 0;
  /** The logs of the replicas, and what was asked of them. */
  events: Past[][] = [];
  streams: string[] = [];
  /** Takes leadership from the first replica, which reports it to readers of LeadershipChanged. Streams do not end then. */
  depose: (() => Promise<void>) | undefined;

  static async start(size: number): Promise<Fleet> {
    const fleet = new Fleet();
    for (let index = 0; index < size; index++) {
      const { address, open } = await serve(authority.issue("replica"), (router) => {
        router.service(LeaderService, {
          getLeader: () => ({
            leader: {
              leading: fleet.leader === index,
              adminAddress: fleet.address,
              holderIdentity: fleet.leader < 0 ? "" : String.fromCharCode(97 + fleet.leader),
            },
          }),
          stepDown: ({ expectedLeaderIdentity = "" }) => {
            fleet.expected.push(expectedLeaderIdentity);
            // The next one leads before the request arrives.
            fleet.leader += fleet.moves;
            return fleet.sync(index);
          },
        });
        router.service(QueueService, { syncObject: () => fleet.sync(index) });
        router.service(EventService, { streamEvents: (request, { signal }) => fleet.stream(index, request, signal) });
      });
      fleet.addresses.push(address);
      fleet.open.push(open);
    }
    return fleet;
  }

  get address(): string {
    return this.known ? (this.addresses[this.leader] ?? "") : "";
  }

  /** Sends the past of the replica's log, and then the replica is lost. */
  async *stream(
    index: number,
    { logId, start, filter, replayOnly }: StreamEventsRequest,
    signal: AbortSignal,
  ): AsyncGenerator<MessageInitShape<typeof StreamEventsResponseSchema>> {
    if (filter?.types.length === 1 && filter.types[0] === EventType.LEADERSHIP_CHANGED) {
      if (index === 0) {
        await this.depose?.();
        const details = { case: "leadershipChanged" as const, value: { holder: "b" } };
        yield { item: { case: "event", value: { ...past(90n, 0, "another replica leads"), details } } };
      }
      await ended(signal);
      return;
    }
    const since = start.case === "sinceSequence" ? start.value : 0n;
    this.streams.push(`${index} "${logId}" ${since}`);
    const events = [...(this.events[index] ?? [])];
    if (logId !== "" && logId !== `log-${index}`) {
      const refusal = new ConnectError("another log", Code.FailedPrecondition);
      refusal.details.push({ type: "google.rpc.ErrorInfo", value: notLeader("", "EVENT_LOG_CHANGED") });
      throw refusal;
    }
    yield { item: { case: "started", value: { logId: `log-${index}` } } };
    for (const event of events) {
      if (event.sequence <= since) {
        continue;
      }
      if (event.message === "dropped") {
        yield { item: { case: "dropped", value: { count: 1n, firstSequence: event.sequence, lastSequence: event.sequence } } };
      } else {
        yield { item: { case: "event", value: event } };
      }
    }
    yield { item: { case: "replayFinished", value: { sequence: events.at(-1)?.sequence ?? 0n } } };
    if (replayOnly) {
      return;
    }
    if (this.depose !== undefined) {
      await ended(signal);
    }
    throw new ConnectError("lost", Code.Unavailable);
  }

  sync(index: number): object {
    this.calls.push(index);
    if (this.leader !== index) {
      const refusal = new ConnectError("another replica leads", Code.FailedPrecondition);
      // Details for sending have a schema; what is here already is what would be sent.
      refusal.details.push({ type: "google.rpc.ErrorInfo", value: notLeader(this.address) });
      throw refusal;
    }
    if (this.fails !== undefined) {
      throw this.fails;
    }
    return {};
  }

  /** Who got a call, since the last time. */
  asked(): number[] {
    return this.calls.splice(0);
  }

  follow(options: FollowerOptions = {}, trust: FinderOptions = { options: { ca: authority.pem } }): { follower: Follower; pauses: number[] } {
    const leases = {
      list: async (): Promise<Lease[]> => {
        this.listed++;
        return this.addresses.map((address, index) => ({
          metadata: {
            name: "lease",
            annotations: { "coxswain.dev/admin-address": address, "coxswain.dev/admin-ca": this.announced },
          },
          spec: { holderIdentity: String.fromCharCode(97 + index), renewTime: new Date(), leaseDurationSeconds: 3600 },
        }));
      },
      get: async () => undefined,
    };
    const pauses: number[] = [];
    const pause = async (milliseconds: number): Promise<void> => void pauses.push(milliseconds);
    const finder = new Finder({ leases, ...trust });
    return { follower: new Follower(finder, { pause, ...options }), pauses };
  }
}

async function ended(signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => (signal.aborted ? resolve() : signal.addEventListener("abort", () => resolve())));
}

/** Follows events until `next` is false after a replay, and collects the messages of the events. */
async function followed(
  fleet: Fleet,
  request: MessageInitShape<typeof StreamEventsRequestSchema>,
  next: (replays: number) => boolean,
  shown: string[] = [],
): Promise<string[]> {
  const { follower } = fleet.follow();
  let replays = 0;
  try {
    for await (const { item } of follower.followEvents(request, { signal: AbortSignal.timeout(10_000) })) {
      if (item.case === "event") {
        shown.push(item.value.message);
      } else if (item.case === "replayFinished" && !next(++replays)) {
        break;
      }
    }
  } finally {
    follower.close();
  }
  return shown;
}

async function reconcile({ queues }: AdminClient, options: CallOptions): Promise<object> {
  return await queues.syncObject({}, options);
}

test("the leader is followed to where it is", async () => {
  const fleet = await Fleet.start(3);
  const { follower, pauses } = fleet.follow();
  for (const leader of [2, 2, 0, 1]) {
    fleet.leader = leader;
    await follower.call(reconcile);
    const asked = fleet.asked();
    assert.ok(asked.at(-1) === leader && asked.length <= 2, asked.join());
  }
  assert.deepEqual(pauses, []);
});

test("of many calls one looks for the leader, and each has its own time", async () => {
  const fleet = await Fleet.start(2);
  const { follower } = fleet.follow();
  await Promise.all(Array.from({ length: 100 }, () => follower.call(reconcile)));
  assert.deepEqual([fleet.listed, fleet.asked().length], [1, 100]);
  // A call that is aborted while it looks keeps no other call from the leader.
  const { follower: another } = fleet.follow();
  const given = new AbortController();
  const first = another.call(reconcile, { signal: given.signal });
  const others = [another.call(reconcile), another.call(reconcile)];
  given.abort();
  await assert.rejects(first);
  await Promise.all(others);
  assert.equal(fleet.asked().length, 2);
  follower.close();
  another.close();
});

test("events are followed across a failover", async () => {
  const fleet = await Fleet.start(2);
  fleet.events = [[past(1n, 1, "a"), past(2n, 2, "b")]];
  const { follower } = fleet.follow();
  const shown: string[] = [];
  let replays = 0;
  for await (const { item } of follower.followEvents()) {
    if (item.case === "event") {
      shown.push(item.value.message);
    } else if (item.case === "dropped") {
      shown.push(`${item.value.count} dropped`);
    } else if (item.case === "replayFinished") {
      replays++;
      if (replays === 1) {
        fleet.events[0]?.push(past(3n, 3, "dropped"), past(4n, 4, "c"));
      } else if (replays === 2) {
        fleet.leader = 1;
        fleet.events[1] = [past(7n, -70, "of before"), past(8n, 9, "d")];
      } else {
        break;
      }
    }
  }
  follower.close();
  assert.deepEqual(shown, ["a", "b", "1 dropped", "c", "d"]);
  assert.deepEqual(fleet.streams, ['0 "" 0', '0 "log-0" 2', '1 "log-0" 4', '1 "" 0']);
});

test("events of a log that the caller names end with an error at another replica", async () => {
  const fleet = await Fleet.start(2);
  fleet.leader = 1;
  fleet.events = [[past(500n, -60, "a"), past(501n, -50, "b")], [past(1n, -40, "c"), past(2n, 9, "d")]];
  const request = { logId: "log-0", start: { case: "sinceSequence" as const, value: 500n } };
  const shown: string[] = [];
  await assert.rejects(followed(fleet, request, () => false, shown), (error) => {
    assert.ok(error instanceof ConnectError && error.code === Code.FailedPrecondition && error.rawMessage === "another log", `${error}`);
    return true;
  });
  assert.deepEqual([shown, fleet.streams], [[], ['1 "log-0" 500']]);
  // The follower goes on by itself once it has followed that log.
  fleet.leader = 0;
  await followed(
    fleet,
    request,
    (replays) => {
      fleet.leader = 1;
      return replays < 2;
    },
    shown,
  );
  assert.deepEqual(shown, ["b", "c", "d"]);
});

for (const [name, filter] of Object.entries({
  controllers: { controllers: ["job-controller"] },
  namespaces: { namespaces: ["default"] },
  objects: { objects: [{ name: "web" }] },
  types: { types: [EventType.API_WRITE] },
  severity: { minSeverity: Severity.WARNING },
})) {
  test(`events without LeadershipChanged are followed when the replica is deposed: ${name}`, async () => {
    const fleet = await Fleet.start(2);
    fleet.events = [[past(1n, 1, "a")], [past(7n, -70, "of before"), past(8n, 9, "c")]];
    let replayed = (): void => {};
    const replay = new Promise<void>((resolve) => (replayed = resolve));
    fleet.depose = async () => {
      await replay;
      // The stream does not have this one yet.
      fleet.events[0]?.push(past(2n, 2, "b"));
      fleet.leader = 1;
    };
    const shown = await followed(fleet, { filter }, (replays) => {
      replayed();
      return replays < 3;
    });
    assert.deepEqual(shown, ["a", "b", "c"]);
    assert.deepEqual(fleet.streams, ['0 "" 0', '0 "log-0" 1', '1 "log-0" 2', '1 "" 0']);
  });
}

test("events of a leader whose clock is behind are shown once", async () => {
  const fleet = await Fleet.start(2);
  fleet.events = [[past(1n, 70, "a")], [past(1n, 9, "61 seconds"), past(2n, 11, "59 seconds")]];
  const shown = await followed(fleet, {}, (replays) => {
    fleet.leader = replays % 2;
    if (replays === 2) {
      fleet.events[0]?.push(past(2n, 71, "b"));
    }
    return replays < 4;
  });
  assert.deepEqual(shown, ["a", "59 seconds", "b"]);
});

test("step-down is for the leader that was found and is sent once", async () => {
  const fleet = await Fleet.start(3);
  const { follower } = fleet.follow();
  // The second time the connection is to a replica that leads no longer.
  for (const leader of [1, 2]) {
    fleet.leader = leader;
    await follower.stepDown();
    assert.deepEqual(fleet.asked(), [leader]);
  }
  // Another one leads by the time the request arrives: it is not asked.
  fleet.leader = 0;
  fleet.moves = 1;
  await assert.rejects(follower.stepDown({ reason: "a drain" }), { code: Code.FailedPrecondition });
  assert.deepEqual([fleet.asked(), fleet.expected], [[0], ["b", "c", "a"]]);
  fleet.leader = -1;
  await assert.rejects(follower.stepDown(), NoLeaderError);
});

test("who is named leads to the leader without Leases", async () => {
  const fleet = await Fleet.start(2);
  const follower = new Follower(new Finder({ addresses: fleet.addresses.slice(0, 1), options: { ca: authority.pem } }));
  for (const leader of [1, 0]) {
    fleet.leader = leader;
    await follower.call(reconcile);
  }
  assert.deepEqual(fleet.asked(), [1, 1, 0]);
});

test("a closed follower leaves no connection, whichever replicas it has asked", async () => {
  const fleet = await Fleet.start(3);
  const { follower } = fleet.follow();
  for (const leader of [0, 2, 1]) {
    fleet.leader = leader;
    await follower.call(reconcile);
  }
  const connections = (): number => fleet.open.reduce((sum, open) => sum + open(), 0);
  const settles = async (expected: number): Promise<void> => {
    for (let tries = 0; connections() !== expected && tries < 200; tries++) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    assert.equal(connections(), expected);
  };
  await settles(1);
  follower.close();
  await settles(0);
  await assert.rejects(follower.call(reconcile), /the follower is closed/);
});

test("an election is waited for", async () => {
  const fleet = await Fleet.start(2);
  fleet.leader = -1;
  const pauses: number[] = [];
  const { follower } = fleet.follow({
    pause: async (milliseconds) => {
      if (pauses.push(milliseconds) === 6) {
        fleet.leader = 1;
      }
    },
  });
  await follower.call(reconcile);
  assert.deepEqual(pauses, [250, 500, 1000, 2000, 4000, 4000]);
  assert.deepEqual(fleet.asked(), [0, 0, 0, 0, 0, 0, 1]);
});

test("there is an end to it", async () => {
  const fleet = await Fleet.start(1);
  fleet.leader = -1;
  await assert.rejects(fleet.follow({ attempts: 3 }).follower.call(reconcile), (error) => {
    assert.ok(error instanceof NoLeaderError && error.cause instanceof ConnectError);
    assert.match(error.message, /no leader in 3 attempts: .*another replica leads/);
    return true;
  });
  assert.equal(fleet.asked().length, 3);
  // The next pause would be longer than what is left.
  const { follower, pauses } = fleet.follow();
  const patient = async (client: AdminClient): Promise<object> => await reconcile(client, {});
  await assert.rejects(follower.call(patient, { timeoutMs: 240 }), /no leader in 1 attempts/);
  assert.deepEqual(pauses, []);
  const aborted = follower.call(reconcile, { signal: AbortSignal.abort(new Error("no more")) });
  await assert.rejects(aborted, /no more/);
});

test("what may have been done is not done again", async () => {
  const fleet = await Fleet.start(2);
  const { follower } = fleet.follow();
  fleet.fails = new ConnectError("lost on the way", Code.Unavailable);
  for (const leader of [0, 1]) {
    // The next one finds the leader anew.
    fleet.leader = leader;
    await assert.rejects(follower.call(reconcile), { code: Code.Unavailable });
    assert.deepEqual(fleet.asked(), [leader]);
  }
  assert.equal(fleet.listed, 2);
});

test("a replica that is away is passed by", async () => {
  const listener = createServer();
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const away = `127.0.0.1:${(listener.address() as AddressInfo).port}`;
  await new Promise((resolve) => listener.close(resolve));
  const fleet = await Fleet.start(1);
  fleet.addresses.unshift(away);
  fleet.known = false;
  assert.equal(await fleet.follow().follower.call(async () => "called"), "called");
  fleet.addresses.splice(1);
  await assert.rejects(fleet.follow({ attempts: 2 }).follower.call(reconcile), (error) => {
    assert.ok(error instanceof NoLeaderError && error.message.includes(`no replica could be reached: a at ${away}: `), `${error}`);
    return true;
  });
});

test("a token is not sent in vain, and other errors are no refusals", async () => {
  const fleet = await Fleet.start(1);
  const token = { token: "secret" };
  await assert.rejects(fleet.follow({}, { options: token }).follower.call(reconcile), NotVouchedForError);
  // Announcements are set aside, for the sake of the token, and the cluster's authority is another one.
  fleet.announced = authority.pem;
  const careful = fleet.follow({ attempts: 1 }, { options: token, clusterCaFile: new Authority("stranger").file });
  await assert.rejects(careful.follower.call(reconcile), /no leader in 1 attempts: .*set trustAnnounced/);
  const mistake = new TypeError("a mistake of the caller's own");
  await assert.rejects(fleet.follow().follower.call(async () => Promise.reject(mistake)), mistake);
});
