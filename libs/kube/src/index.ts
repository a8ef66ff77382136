export { type KubeClient, KubeStatusError, kubeClient } from './client.ts';
export { flaggedConnection, kubeconfigFile, serverIn } from './connection.ts';
export { leaderLease } from './leader.ts';
export { periodic, unlessNotFound } from './lease.ts';
export { LeaseCounter, type LeaseCountObserver } from './lease-counter.ts';
export { leaseHolder } from './lease-holder.ts';
export {
  compareVersions,
  type Following,
  followObjects,
  type KubeObject,
  type ObjectObserver,
  objectName,
} from './objects.ts';
export { cutEvent, deletionCost, podOf } from './pod.ts';
export { notReviewed, TokenReviews, type TokenUsers, type TokenVerdict, tokenAuthenticator } from './token-reviews.ts';
