export { type KubeClient, kubeClient } from './client.ts';
export { inClusterConnection, kubeconfigFile } from './connection.ts';
export { LeaseCounter, type LeaseCountObserver } from './lease-counter.ts';
export { type LeaseCollectionObserver, leaseHolder } from './lease-holder.ts';
export { cutEvent, deletionCost, podOf } from './pod.ts';
export { TokenReviews, type TokenVerdict, tokenAuthenticator } from './token-reviews.ts';
