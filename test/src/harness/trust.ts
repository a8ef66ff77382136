import { createTrust, type Trust } from '@isthmus/certificates/testing';
import { tempDir } from './places.ts';
import type { Scope } from './scope.ts';

export type { Trust };

/** Creates the certificate authorities of a plane, and what an API server holds. */
export async function newTrust(scope: Scope): Promise<Trust> {
  return createTrust(await tempDir(scope), 'kube-apiserver');
}
