import { Authority, type Identity } from '@isthmus/service/testing';
import { tempDir } from './places.ts';
import type { Scope } from './scope.ts';

/** The three authorities of a plane: who may dial, who may be an agent, who may be a gateway or hub. */
export interface Trust {
  readonly dir: string;
  readonly callers: Authority;
  readonly agents: Authority;
  readonly peers: Authority;
  /** What an API server holds. */
  readonly caller: Identity;
}

export async function newTrust(scope: Scope): Promise<Trust> {
  const dir = await tempDir(scope);
  const [callers, agents, peers] = await Promise.all([
    Authority.create(dir, 'callers'),
    Authority.create(dir, 'agents'),
    Authority.create(dir, 'peers'),
  ]);
  return { dir, callers, agents, peers, caller: await callers.client('kube-apiserver') };
}
