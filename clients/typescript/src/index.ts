/**
 * Connects to the admin API of Coxswain, a Kubernetes controller manager.
 *
 * The messages and services are generated and exported from here as well; what is written by hand is the small part
 * around them: `connect` makes a client of one replica, a `Finder` finds the replicas by their Leases, and a `Follower`
 * sends calls to the one that leads.
 */

export { type AdminClient, connect, type Options } from "./connect.js";
export {
  ApiServer,
  CERTIFICATE_NAME,
  Finder,
  type FinderOptions,
  inCluster,
  type Lease,
  type Leases,
  NotVouchedForError,
  type Replica,
  type Replicas,
} from "./discovery.js";
export type { EventsRequest } from "./events.js";
export { Follower, type FollowerOptions, NoLeaderError } from "./follower.js";
export * from "./gen/coxswain/admin/v1/controllers_pb.js";
export * from "./gen/coxswain/admin/v1/events_pb.js";
export * from "./gen/coxswain/admin/v1/leader_pb.js";
export * from "./gen/coxswain/admin/v1/queues_pb.js";
export * from "./gen/coxswain/admin/v1/types_pb.js";
