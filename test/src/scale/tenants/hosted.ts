import { Destination, type Identity } from '../../harness/index.ts';
import type { Scope } from '../../harness/scope.ts';
import type { TenantTrust } from '../../tenants/tenant-trust.ts';
import { TenantsDirectory } from '../../tenants/tenants-directory.ts';
import type { Member } from '../messages.ts';

/** How many tenants are made at once: keys come from a pool of threads, and the rest of the work has only this one. */
const AT_ONCE = 8;

/** Every cluster has its API server here, so all tenants dial the same destination. */
export const SAME_DESTINATION = '10.96.0.1:443';

/** A tenant with its credentials. */
export interface Hosted {
  readonly name: string;
  readonly trust: TenantTrust;
  readonly caller: Identity;
}

/** Tenants, their credentials, and a network of their own each, in which the same destination answers with the tenant's name. */
export class Hosting {
  readonly directory: TenantsDirectory;
  readonly tenants: Hosted[] = [];
  /** Agents of all tenants, those of one tenant in a row. */
  readonly members: Member[] = [];
  readonly #port: number;

  private constructor(directory: TenantsDirectory, port: number) {
    this.directory = directory;
    this.#port = port;
  }

  static async create(scope: Scope): Promise<Hosting> {
    return new Hosting(await TenantsDirectory.create(scope), await answeringByAddress(scope));
  }

  /** Makes tenants until there are `size`, and writes their files. */
  async grow(size: number, agentsEach: number): Promise<void> {
    for (let from = this.tenants.length; from < size; from += AT_ONCE) {
      const numbers = Array.from({ length: Math.min(AT_ONCE, size - from) }, (_, index) => from + index);
      const made = await Promise.all(numbers.map((number) => this.#make(number, agentsEach)));
      for (const { hosted, members } of made) {
        this.tenants.push(hosted);
        this.members.push(...members);
      }
    }
  }

  /** Makes a tenant that no program knows of yet. `admit` writes its file. */
  async prepare(agents: number): Promise<Hosted> {
    const { hosted, members } = await this.#make(this.tenants.length, agents, false);
    this.tenants.push(hosted);
    this.members.push(...members);
    return hosted;
  }

  admit({ trust }: Hosted): Promise<void> {
    return this.directory.write(trust.file);
  }

  async #make(number: number, agents: number, admitted = true) {
    const name = nameOf(number);
    const trust = await this.directory.trust(name);
    if (admitted) await this.directory.write(trust.file);
    const destination = { host: addressOf(number), port: this.#port };
    const ids = Array.from({ length: agents }, (_, index) => `agent-${index}`);
    const members = await Promise.all(
      ids.map(async (agentId) => ({ agentId, ...(await trust.agent(agentId)), destination })),
    );
    return { hosted: { name, trust, caller: await trust.caller() }, members };
  }
}

function nameOf(number: number): string {
  return `tenant-${number}`;
}

/** 127.64.0.0/10 is on loopback like all of 127.0.0.0/8, and has room for four million tenants. */
function addressOf(number: number): string {
  return `127.${64 + (number >> 16)}.${(number >> 8) & 255}.${number & 255}`;
}

function numberAt(address: string): number {
  const [, high = 0, middle = 0, low = 0] = address.split('.').map(Number);
  return ((high - 64) << 16) + (middle << 8) + low;
}

/** Answers each connection with the name of the tenant whose address was dialled. @returns its port */
async function answeringByAddress(scope: Scope): Promise<number> {
  const destination = new Destination('0.0.0.0', (socket) => {
    socket.write(`${nameOf(numberAt(socket.localAddress ?? ''))}\n`);
    socket.pipe(socket);
  });
  return (await scope.use(destination).listen()).port;
}
