import { createTrust, type IdentityOptions, type Trust } from '@isthmus/certificates/testing';
import { HUB_SERVER_NAME } from '@isthmus/tunnel';
import { tempDir } from './places.ts';
import type { Scope } from './scope.ts';

export type { Trust };

/** Of a hub's certificate that does not name its address. */
export const HUB_NAMED = { hosts: [{ type: 'dns', value: HUB_SERVER_NAME }] } satisfies IdentityOptions;

/** Creates the certificate authorities of a plane, and what an API server holds. @param validMs how long all of it is valid */
export async function newTrust(scope: Scope, validMs?: number): Promise<Trust> {
  return createTrust(await tempDir(scope), 'kube-apiserver', validMs);
}
