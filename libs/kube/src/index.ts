export { type KubeClient, kubeClient } from './client.ts';
export { inClusterConnection } from './in-cluster.ts';
export { kubeconfigFile } from './kubeconfig.ts';
export type { LeaseCollectionObserver } from './lease-collection.ts';
export { type LeaseCounter, type LeaseCountObserver, leaseCounter } from './lease-counter.ts';
export { leaseHolder } from './lease-holder.ts';
export { TokenReviews } from './reviews.ts';
export { tokenAuthenticator } from './token-review.ts';
