export * from './admin.ts';
export * from './admin-client.ts';
export * from './admin-rpc.ts';
export * from './flags/index.ts';
export * from './kube/index.ts';
