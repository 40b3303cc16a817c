/** How far a stream of events has been shown, so that another stream goes on from there. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampMs } from "@bufbuild/protobuf/wkt";

import { EventType, Severity, type StreamEventsRequestSchema, type StreamEventsResponse } from "./gen/coxswain/admin/v1/events_pb.js";

/**
 * The supported offset between the clocks of two replicas. The alert CoxswainClockOffset allows each replica 30 seconds from the
 * clock of the API server.
 */
const CLOCK_OFFSET_MS = 60_000;
/** Bounds how many logs of former leaders a position remembers. */
const MAX_FORMER_LOGS = 16;

/** What is asked of StreamEvents. */
export type EventsRequest = MessageInitShape<typeof StreamEventsRequestSchema>;

/** A position in the log of a replica, and in time for the log of another one. */
export class Position {
  readonly #request: EventsRequest;
  /** Log and number of the last event; undefined before the first. */
  #last: { logId: string; sequence: bigint } | undefined;
  #logId = "";
  /** How far the logs of former leaders were followed, the oldest first, and how far this one was followed then. */
  readonly #former = new Map<string, bigint>();
  #shown = 0n;
  /** The time of the event that was shown last, and the time before which events are hidden while catching up. */
  #latest: number;
  #oldest: number;
  /** Whether the past is being sent, and whether it is that of another replica. */
  #replaying = false;
  #catchingUp = false;

  constructor(request: EventsRequest, now: number) {
    this.#request = request;
    this.#latest = now;
    this.#oldest = now;
  }

  get replayOnly(): boolean {
    return this.#request.replayOnly ?? false;
  }

  /** Whether the next stream begins where the caller's request does, in the caller's log if it names one. */
  get isCallers(): boolean {
    return this.#last === undefined;
  }

  /**
   * Whether the stream goes on without LeadershipChanged events: these are about no controller and no object, and of severity
   * INFO.
   */
  get leavesLeadershipOut(): boolean {
    const { controllers = [], namespaces = [], objects = [], types = [], minSeverity = 0 } = this.#request.filter ?? {};
    const about = controllers.length + namespaces.length + objects.length > 0;
    const leavesOut = about || minSeverity > Severity.INFO || (types.length > 0 && !types.includes(EventType.LEADERSHIP_CHANGED));
    return leavesOut && !this.replayOnly;
  }

  /** The request of the stream that goes on from here. */
  request(): EventsRequest {
    this.#replaying = true;
    if (this.#last === undefined) {
      return this.#request;
    }
    const { logId, sequence } = this.#last;
    return { ...this.#request, logId, start: { case: "sinceSequence", value: sequence } };
  }

  /** The request for what the replica's log has from here on, without waiting for more. */
  rest(): EventsRequest {
    return { ...this.request(), replayOnly: true };
  }

  /** Has the next stream begin with all that the log of another replica has. */
  forgetLog(): void {
    if (this.#last !== undefined) {
      this.#former.delete(this.#last.logId);
      this.#former.set(this.#last.logId, this.#last.sequence);
    }
    for (const logId of this.#former.keys()) {
      if (this.#former.size > MAX_FORMER_LOGS) {
        this.#former.delete(logId);
      }
    }
    this.#oldest = this.#latest - CLOCK_OFFSET_MS;
    this.#last = { logId: "", sequence: 0n };
    this.#catchingUp = true;
  }

  /** Takes note of an answer. Returns whether it is to be shown. */
  take({ item }: StreamEventsResponse): boolean {
    switch (item.case) {
      case "started":
        this.#logId = item.value.logId;
        if (this.#last !== undefined && this.#last.logId !== this.#logId) {
          this.#last = { logId: this.#logId, sequence: 0n };
          this.#shown = this.#former.get(this.#logId) ?? 0n;
        }
        break;
      case "event": {
        this.#goOnTo(item.value.sequence);
        const at = item.value.time === undefined ? this.#latest : timestampMs(item.value.time);
        if (this.#catchingUp && (item.value.sequence <= this.#shown || at < this.#oldest)) {
          return false;
        }
        this.#latest = at;
        break;
      }
      case "dropped":
        this.#goOnTo(item.value.lastSequence);
        break;
      case "replayFinished":
        this.#goOnTo(item.value.sequence);
        this.#replaying = false;
        this.#catchingUp = false;
        break;
    }
    return true;
  }

  /** Whether an answer of the present tells that the replica no longer leads. */
  hasMoved(answer: StreamEventsResponse): boolean {
    return !this.#replaying && isDeposed(answer);
  }

  #goOnTo(sequence: bigint): void {
    const before = this.#last?.sequence ?? 0n;
    this.#last = { logId: this.#logId, sequence: sequence > before ? sequence : before };
  }
}

/** The request for new LeadershipChanged events alone. */
export function leadership(): EventsRequest {
  return { filter: { types: [EventType.LEADERSHIP_CHANGED] } };
}

/** Whether an answer shows that its replica does not lead. */
export function isDeposed({ item }: StreamEventsResponse): boolean {
  const details = item.case === "event" ? item.value.details : undefined;
  return details?.case === "leadershipChanged" && !details.value.leading;
}
