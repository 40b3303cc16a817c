/** Sends calls to the replica that leads, whichever that is by then. */

import { setTimeout } from "node:timers/promises";

import { BinaryReader } from "@bufbuild/protobuf/wire";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type CallOptions, Code, ConnectError } from "@connectrpc/connect";

import { type AdminClient } from "./connect.js";
import { type EventsRequest, isDeposed, leadership, Position } from "./events.js";
import { type StreamEventsResponse } from "./gen/coxswain/admin/v1/events_pb.js";
import { type StepDownRequestSchema, type StepDownResponse } from "./gen/coxswain/admin/v1/leader_pb.js";
import { describe, type Finder, named, type Replica, type Replicas } from "./discovery.js";

const DOMAIN = "admin.coxswain.dev";
const NOT_LEADER = "NOT_LEADER";
const EVENT_LOG_CHANGED = "EVENT_LOG_CHANGED";
/** A stream that ends so has ended with its replica or its connection. */
const LOST = new Set([Code.Unavailable, Code.Unknown, Code.Internal, Code.Canceled, Code.Aborted]);
const DEPOSED = "the replica no longer leads";
const ENDED = "the replica has ended the stream";
/** A replica that is there says sooner who leads. */
const PROBE_MS = 5_000;
/** An election takes seconds: the first pause is short, and each is twice as long as the one before. */
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 4_000;
/** What Connect makes of a connection that there is not, or that is lost. */
const AWAY = new Set([Code.Unavailable, Code.DeadlineExceeded, Code.Aborted, Code.Internal]);

/** How a follower follows. */
export interface FollowerOptions {
  /** How often a call is sent at most; ten times if not given. */
  attempts?: number;
  /** Waits so many milliseconds; a test does not. */
  pause?: (milliseconds: number, signal?: AbortSignal) => Promise<void>;
}

/** Nobody could be found who leads. The cause is what was said last. */
export class NoLeaderError extends Error {
  override readonly name = "NoLeaderError";
}

/** No replica answers. Nothing was sent, so it may be tried again. */
class UnreachableError extends Error {}

/** A client, and how many calls are on it: it is closed with the last of them once it is retired. */
interface Session {
  readonly client: AdminClient;
  calls: number;
  retired: boolean;
}

/** How a search ended, for those who waited for it. */
interface Search {
  error?: UnreachableError;
}

/** Ends a stream of events when its replica no longer leads, whatever the filter of the stream leaves out. */
class Guard {
  /** Ends the stream, and the guard's own. */
  readonly signal: AbortSignal;
  /** Whether the replica no longer leads, and what the guard has ended the stream for. */
  isDeposed = false;
  error: unknown;
  readonly #over = new AbortController();

  constructor(client: AdminClient, signal: AbortSignal | undefined) {
    this.signal = signal === undefined ? this.#over.signal : AbortSignal.any([signal, this.#over.signal]);
    void this.#run(client);
  }

  end(): void {
    this.#over.abort();
  }

  async #run(client: AdminClient): Promise<void> {
    try {
      for await (const answer of client.events.streamEvents(leadership(), { signal: this.signal })) {
        if (isDeposed(answer)) {
          this.isDeposed = true;
          break;
        }
      }
      this.error = new UnreachableError(this.isDeposed ? DEPOSED : ENDED);
    } catch (error) {
      this.error = error;
    }
    this.end();
  }
}

/** Follows the leader. It looks for nothing before the first call. */
export class Follower {
  readonly #finder: Finder;
  readonly #attempts: number;
  readonly #pause: (milliseconds: number, signal?: AbortSignal) => Promise<void>;
  #current: Session | undefined;
  /** The search that is under way: whether others may have its error. */
  #search: Promise<Search> | undefined;
  #closed = false;

  constructor(finder: Finder, { attempts = 10, pause = wait }: FollowerOptions = {}) {
    this.#finder = finder;
    this.#attempts = attempts;
    this.#pause = pause;
  }

  /**
   * Runs `call` with a client of the leader, and options that hold what is left of `timeoutMs` (30 seconds if not given).
   *
   * If the error is that the replica does not lead (NOT_LEADER), the leader is found anew and `call` runs again:
   * NOT_LEADER says that nothing was done. Any other error is thrown as it is, for what was done is not known then; if
   * the connection was lost, the next call finds the leader anew. `call` makes one request, for it runs again from its
   * beginning. `NoLeaderError` is thrown when the attempts or the time are used up. Reading the Leases has a limit of its
   * own beside `timeoutMs`: that of an `ApiServer` is ten seconds for each request.
   */
  async call<R>(
    call: (leader: AdminClient, options: CallOptions) => Promise<R>,
    { timeoutMs = 30_000, signal }: { timeoutMs?: number; signal?: AbortSignal } = {},
  ): Promise<R> {
    const end = performance.now() + timeoutMs;
    // gRPC takes whole milliseconds.
    const options = (): CallOptions => ({ timeoutMs: Math.max(Math.ceil(end - performance.now()), 1), ...(signal && { signal }) });
    const asked = new Set<string>();
    let longer = FIRST_PAUSE_MS;
    let next = "";
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#once(call, next, options);
      } catch (error) {
        const address = leaderAddress(error);
        if (address === undefined && !(error instanceof UnreachableError)) {
          throw error;
        }
        next = address ?? "";
        // Who is named for the first time is asked at once; else it is not settled yet who leads.
        const pause = next !== "" && !asked.has(next) ? 0 : longer;
        if (attempt >= this.#attempts || performance.now() + pause >= end) {
          throw new NoLeaderError(`no leader in ${attempt} attempts: ${(error as Error).message}`, { cause: error });
        }
        if (pause > 0) {
          await this.#pause(pause, signal);
          longer = Math.min(2 * longer, LONGEST_PAUSE_MS);
        }
        asked.add(next);
      }
    }
  }

  /**
   * Makes the replica that leads give up leadership: the one that is found first, and no other. The request is sent once. If
   * another replica leads by then, the error of the replica is thrown (LEADER_CHANGED), and no leader steps down.
   * `NoLeaderError` is thrown when nobody leads.
   */
  async stepDown(
    request: MessageInitShape<typeof StepDownRequestSchema> = {},
    { timeoutMs = 30_000, signal }: { timeoutMs?: number; signal?: AbortSignal } = {},
  ): Promise<StepDownResponse> {
    const end = performance.now() + timeoutMs;
    const options = (): CallOptions => ({ timeoutMs: Math.max(Math.ceil(end - performance.now()), 1), ...(signal && { signal }) });
    let { expectedLeaderIdentity } = request;
    let next = "";
    if (expectedLeaderIdentity === undefined) {
      const ask = (client: AdminClient, call: CallOptions) => client.leader.getLeader({}, call);
      const { leader } = await this.call(ask, { timeoutMs, ...(signal && { signal }) });
      if (leader === undefined || leader.holderIdentity === "") {
        throw new NoLeaderError("nobody holds the Lease");
      }
      expectedLeaderIdentity = leader.holderIdentity;
      if (!leader.leading) {
        this.#retire(this.#current);
        next = leader.adminAddress;
      }
    }
    const sent = { ...request, expectedLeaderIdentity };
    try {
      return await this.#once((client, call) => client.leader.stepDown(sent, call), next, options);
    } catch (error) {
      if (error instanceof UnreachableError) {
        throw new NoLeaderError(error.message, { cause: error });
      }
      throw error;
    }
  }

  /**
   * Yields the answers of StreamEvents of the leader, for as long as they are read.
   *
   * When the stream ends with its replica, its connection or its age, or when a LeadershipChanged event shows that the replica no
   * longer leads, the stream resumes at the leader: in the same log after the last event, and in the log of another replica with
   * the events there that are newer than the last one. The clocks of two replicas may differ, so events of another replica are
   * yielded that are up to 60 seconds older than the last one. Each stream begins with a `started` answer, and `dropped` answers
   * tell of gaps.
   *
   * If the filter leaves LeadershipChanged out, a second stream reads these events, and they are not yielded.
   *
   * Other errors are thrown as they are, EVENT_LOG_CHANGED among them: it means that the request has the `logId` of a log that the
   * leader does not have. The events since then are in no log of the leader: call `followEvents` again without `logId`, with
   * `sinceSequence` 0 for all that the leader has. `NoLeaderError` is thrown when no replica resumes the stream. `timeoutMs` bounds
   * each search for the leader. With `replayOnly` it ends after the past.
   */
  async *followEvents(
    request: EventsRequest = {},
    { timeoutMs = 30_000, signal }: { timeoutMs?: number; signal?: AbortSignal } = {},
  ): AsyncGenerator<StreamEventsResponse, void, undefined> {
    const position = new Position(request, Date.now());
    let longer = FIRST_PAUSE_MS;
    for (let attempt = 1; ; attempt++) {
      let lost: unknown;
      try {
        for await (const answer of this.#events(position, timeoutMs, signal)) {
          attempt = 0;
          longer = FIRST_PAUSE_MS;
          if (!position.take(answer)) {
            continue;
          }
          yield answer;
          if (position.hasMoved(answer)) {
            this.#retire(this.#current);
            throw new UnreachableError(DEPOSED);
          }
        }
        if (position.replayOnly) {
          return;
        }
        lost = new UnreachableError(ENDED);
      } catch (error) {
        signal?.throwIfAborted();
        if (reason(error) === EVENT_LOG_CHANGED && !position.isCallers) {
          position.forgetLog();
        } else if (!(error instanceof UnreachableError) && !isLost(error)) {
          throw error;
        }
        lost = error;
      }
      if (attempt >= this.#attempts) {
        throw new NoLeaderError(`no leader in ${attempt} attempts: ${(lost as Error).message}`, { cause: lost });
      }
      await this.#pause(longer, signal);
      longer = Math.min(2 * longer, LONGEST_PAUSE_MS);
    }
  }

  /** One stream. A session on which it is lost is used no longer. */
  async *#events(position: Position, timeoutMs: number, signal: AbortSignal | undefined): AsyncGenerator<StreamEventsResponse> {
    const end = performance.now() + timeoutMs;
    const options = (): CallOptions => ({ timeoutMs: Math.max(Math.ceil(end - performance.now()), 1), ...(signal && { signal }) });
    const session = await this.#enter("", options);
    const guard = position.leavesLeadershipOut ? new Guard(session.client, signal) : undefined;
    const guarded = guard?.signal ?? signal;
    try {
      try {
        yield* session.client.events.streamEvents(position.request(), guarded && { signal: guarded });
      } catch (error) {
        if (guard?.error === undefined) {
          throw error;
        }
        if (guard.isDeposed) {
          // The guard may be ahead of the stream. Whatever ends the rest early, the next leader is due.
          try {
            yield* session.client.events.streamEvents(position.rest(), signal && { signal });
          } catch {
            signal?.throwIfAborted();
          }
        }
        throw guard.error;
      }
      session.retired = true;
    } catch (error) {
      session.retired ||= error instanceof UnreachableError || isLost(error);
      throw error;
    } finally {
      guard?.end();
      session.calls--;
      if (session.retired) {
        this.#retire(session);
      }
    }
  }

  /** Ends the connection, once the calls on it have ended. No call can be made afterwards. */
  close(): void {
    this.#closed = true;
    this.#retire(this.#current);
  }

  #retire(session: Session | undefined): void {
    if (session === undefined) {
      return;
    }
    session.retired = true;
    if (this.#current === session) {
      this.#current = undefined;
    }
    if (session.calls === 0) {
      session.client.close();
    }
  }

  async #enter(next: string, options: () => CallOptions): Promise<Session> {
    if (this.#closed) {
      throw new Error("the follower is closed");
    }
    // However many calls find that the leader is gone, one of them looks for the next one.
    while (this.#current === undefined && this.#search !== undefined) {
      const { error } = await within(this.#search, options);
      if (error !== undefined) {
        throw error;
      }
      if (this.#closed) {
        throw new Error("the follower is closed");
      }
    }
    if (this.#current !== undefined) {
      this.#current.calls++;
      return this.#current;
    }
    let done = (_: Search): void => {};
    this.#search = new Promise((resolve) => (done = resolve));
    const search: Search = {};
    try {
      const found: Session = { client: await this.#find(next, options), calls: 1, retired: this.#closed };
      if (!found.retired) {
        this.#current = found;
      }
      return found;
    } catch (error) {
      // An error that comes of the time or the signal of this call is its own.
      if (error instanceof UnreachableError && (options().timeoutMs ?? 0) > 1) {
        search.error = error;
      }
      throw error;
    } finally {
      this.#search = undefined;
      done(search);
    }
  }

  async #once<R>(
    call: (leader: AdminClient, options: CallOptions) => Promise<R>,
    next: string,
    options: () => CallOptions,
  ): Promise<R> {
    const session = await this.#enter(next, options);
    try {
      return await call(session.client, options());
    } catch (error) {
      const lost = error instanceof ConnectError && error.code !== Code.DeadlineExceeded && AWAY.has(error.code);
      if (lost || leaderAddress(error) !== undefined) {
        session.retired = true;
      }
      throw error;
    } finally {
      session.calls--;
      if (session.retired) {
        this.#retire(session);
      }
    }
  }

  /** Connects to who leads: `next` if that is known, else who the Leases say, else who a replica says. */
  async #find(next: string, options: () => CallOptions): Promise<AdminClient> {
    const replicas = await this.#finder.replicas(options().signal);
    const others = replicas.candidates.filter(({ address }) => address !== next);
    const candidates = next === "" ? replicas.candidates : [at(replicas, next), ...others];
    const tried: string[] = [];
    const refusals: unknown[] = [];
    for (const candidate of candidates) {
      let replica = candidate;
      // The replica itself, then the one that it names.
      for (let hop = 0; hop < 2; hop++) {
        let client: AdminClient;
        try {
          client = this.#finder.connect(replica);
        } catch (error) {
          // What one Lease says must not keep anybody from the other replicas.
          refusals.push(error);
          tried.push(`${describe(replica)}: ${(error as Error).message}`);
          break;
        }
        let leader: { leading: boolean; adminAddress: string };
        try {
          leader = await probe(client, options());
        } catch (error) {
          client.close();
          options().signal?.throwIfAborted();
          if (!(error instanceof ConnectError) || !AWAY.has(error.code)) {
            throw error;
          }
          tried.push(`${describe(replica)}: ${error.message}${this.#finder.hint(replica)}`);
          break;
        }
        if (leader.leading || leader.adminAddress === "" || leader.adminAddress === replica.address || hop > 0) {
          return client;
        }
        client.close();
        replica = at(replicas, leader.adminAddress);
      }
    }
    if (refusals.length > 0 && refusals.length === tried.length) {
      // It would be the same the next time.
      throw refusals[0];
    }
    tried.push(...replicas.passedOver);
    throw new UnreachableError(
      tried.length === 0
        ? "no replica that serves the admin API has announced itself"
        : `no replica can be called: ${tried.join("; ")}`,
    );
  }
}

async function wait(milliseconds: number, signal?: AbortSignal): Promise<void> {
  await setTimeout(milliseconds, undefined, signal && { signal });
}

/** Waits for the search of another call, for as long as this one may last. */
async function within(search: Promise<Search>, options: () => CallOptions): Promise<Search> {
  const { timeoutMs, signal } = options();
  const over = new AbortController();
  const late = async (): Promise<Search> => {
    await setTimeout(timeoutMs, undefined, { signal: signal ? AbortSignal.any([signal, over.signal]) : over.signal });
    return { error: new UnreachableError("the time is over, and another call still looks for the leader") };
  };
  try {
    return await Promise.race([search, late()]);
  } finally {
    over.abort();
  }
}

/** The replica at an address that another one has named. */
function at({ candidates }: Replicas, address: string): Replica {
  return candidates.find((replica) => replica.address === address) ?? named(address);
}

/** Asks who leads: a question that may be asked twice, so that no call is sent to who does not answer. */
async function probe(client: AdminClient, options: CallOptions): Promise<{ leading: boolean; adminAddress: string }> {
  const nobody = { leading: false, adminAddress: "" };
  try {
    const timeoutMs = Math.min(options.timeoutMs ?? PROBE_MS, PROBE_MS);
    return (await client.leader.getLeader({}, { ...options, timeoutMs })).leader ?? nobody;
  } catch (error) {
    // Who may not ask that goes on all the same: the call itself will tell.
    if (error instanceof ConnectError && error.code === Code.PermissionDenied) {
      return nobody;
    }
    throw error;
  }
}

/** Where the leader is, according to a replica that refuses because it does not lead; empty if it does not know. */
function leaderAddress(error: unknown): string | undefined {
  if (!(error instanceof ConnectError) || error.code !== Code.FailedPrecondition) {
    return undefined;
  }
  const info = infoOf(error);
  return info?.reason === NOT_LEADER ? (info.metadata.get("leader_address") ?? "") : undefined;
}

/** The reason of an error of this API. */
function reason(error: unknown): string | undefined {
  return error instanceof ConnectError ? infoOf(error)?.reason : undefined;
}

function isLost(error: unknown): boolean {
  return error instanceof ConnectError && LOST.has(error.code);
}

/** The ErrorInfo of an error of this API. */
function infoOf({ details }: ConnectError): ReturnType<typeof errorInfo> | undefined {
  for (const detail of details) {
    if ("type" in detail && detail.type === "google.rpc.ErrorInfo") {
      const info = errorInfo(detail.value);
      if (info.domain === DOMAIN) {
        return info;
      }
    }
  }
  return undefined;
}

/** Reads a `google.rpc.ErrorInfo`, without a package that has it: a reason (1), a domain (2) and a map (3) of strings. */
function errorInfo(bytes: Uint8Array): { reason: string; domain: string; metadata: Map<string, string> } {
  const metadata = new Map<string, string>();
  const fields = strings(bytes, (entry) => {
    const { 1: key = "", 2: value = "" } = strings(entry);
    metadata.set(key, value);
  });
  return { reason: fields[1] ?? "", domain: fields[2] ?? "", metadata };
}

/** The strings of a message by their numbers; `inner` gets what is in its field 3. */
function strings(bytes: Uint8Array, inner?: (bytes: Uint8Array) => void): Record<number, string> {
  const reader = new BinaryReader(bytes);
  const found: Record<number, string> = {};
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (field === 3 && inner !== undefined) {
      inner(reader.bytes());
    } else if (field === 1 || field === 2) {
      found[field] = reader.string();
    } else {
      reader.skip(type);
    }
  }
  return found;
}
