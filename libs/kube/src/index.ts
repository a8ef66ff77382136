export { type KubeClient, kubeClient } from './client.ts';
export { inClusterConnection, kubeconfigFile } from './connection.ts';
export { deletionCost, podOf } from './deletion-cost.ts';
export { type LeaseCounter, type LeaseCountObserver, leaseCounter } from './lease-counter.ts';
export { type LeaseCollectionObserver, leaseHolder } from './lease-holder.ts';
export { TokenReviews, tokenAuthenticator } from './token-reviews.ts';
