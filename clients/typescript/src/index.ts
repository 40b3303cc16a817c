/**
 * Connects to the admin API of Coxswain, a Kubernetes controller manager.
 *
 * The package exports the generated messages and services, and adds connections: `connect` creates a client of one
 * replica, a `Finder` finds the replicas by their Leases, and a `Follower` sends calls to the leader.
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
