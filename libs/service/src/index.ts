export * from './admin.ts';
export * from './admin-client.ts';
export * from './admin-rpc.ts';
