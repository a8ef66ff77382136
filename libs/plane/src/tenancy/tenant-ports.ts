import { type Clock, systemClock } from '@isthmus/runtime';
import { inWords, type PlaneEvents, planeEvents } from '@isthmus/tunnel';
import { PLANE } from '../defaults.ts';
import type { Tenancy } from '../roles.ts';

/** A port or unix socket that a tenant's file names. */
export interface TenantPort {
  readonly tenant: string;
  /** `acme.yaml: agents[0].port` */
  readonly rule: string;
  readonly port?: number;
  /** An absolute path. */
  readonly unixSocket?: string;
}

export interface TenantPortsOptions<L> {
  readonly tenancy: Pick<Tenancy, 'tenants' | 'changed'>;
  /** Whose ports they are. */
  readonly of: 'agents' | 'callers';
  /** @param events for what listens there */
  readonly open: (port: TenantPort, events: PlaneEvents) => Promise<L>;
  /** Called when the tenant's file does not name it any more. */
  readonly close: (port: TenantPort, listening: L) => Promise<void>;
  /** Gets `tenants:failure` for each port that cannot be opened, once for each reason. */
  readonly events: PlaneEvents;
  readonly clock?: Clock;
}

/** Opens and closes the tenants' own ports and unix sockets, as their files say. A port that cannot be opened is retried, and delays no other. */
export class TenantPorts<L> {
  readonly #options: TenantPortsOptions<L>;
  readonly #addresses = new Map<string, Address<L>>();
  readonly #unwatch: () => void;
  #stopped = false;

  constructor(options: TenantPortsOptions<L>) {
    this.#options = options;
    this.#unwatch = options.tenancy.changed(() => void this.look());
  }

  /** Why some are not open. */
  get problems(): string[] {
    return [...this.#addresses.values()].flatMap(({ problem }) => problem ?? []);
  }

  /** Follows the files. Resolves once each port is open, or has failed. */
  async look(): Promise<void> {
    if (this.#stopped) return;
    const wanted = this.#wanted();
    for (const key of wanted.keys())
      if (!this.#addresses.has(key)) this.#addresses.set(key, new Address(this.#options));
    const settled = [...this.#addresses].map(async ([key, address]) => {
      await address.settle(wanted.get(key));
      if (address.free && this.#addresses.get(key) === address) this.#addresses.delete(key);
    });
    await Promise.all(settled);
  }

  /** Opens no more ports. Open ones stay open. Resolves when none is being opened. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#unwatch();
    await Promise.all([...this.#addresses.values()].map((address) => address.stop()));
  }

  /** The ports of all tenants, by address. No two have the same address. */
  #wanted(): Map<string, TenantPort> {
    const { tenancy, of } = this.#options;
    const wanted = new Map<string, TenantPort>();
    for (const { name: tenant, path, file } of tenancy.tenants.all)
      for (const [index, entry] of (file[of] ?? []).entries()) {
        const { port, unixSocket } = { unixSocket: undefined, ...entry };
        const rule = `${path}: ${of}[${index}]`;
        if (port !== undefined) wanted.set(`port ${port}`, { tenant, rule: `${rule}.port`, port });
        if (unixSocket !== undefined) wanted.set(unixSocket, { tenant, rule: `${rule}.unixSocket`, unixSocket });
      }
    return wanted;
  }
}

/** One port or path of a socket. It may pass from one tenant to another: the first port closes before the next opens. */
class Address<L> {
  /** Why it is not open. */
  problem: string | undefined;
  readonly #options: TenantPortsOptions<L>;
  #wanted: TenantPort | undefined;
  #opened: { readonly port: TenantPort; readonly listening: L } | undefined;
  #step: Promise<void> | undefined;
  #cancelRetry: (() => void) | undefined;
  #stopped = false;

  constructor(options: TenantPortsOptions<L>) {
    this.#options = options;
  }

  /** Whether there is neither a port nor work left. */
  get free(): boolean {
    return !this.#wanted && !this.#opened && !this.#step;
  }

  /** Opens or closes the port. Resolves once that is done, or waits for a retry. */
  async settle(wanted: TenantPort | undefined): Promise<void> {
    if (!same(this.#wanted, wanted)) this.#forgetFailure();
    this.#wanted = wanted;
    while (!this.#stopped && !this.#cancelRetry && !same(this.#opened?.port, this.#wanted)) {
      this.#step ??= this.#change().finally(() => {
        this.#step = undefined;
      });
      await this.#step;
    }
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#forgetFailure();
    await this.#step;
  }

  async #change(): Promise<void> {
    const opened = this.#opened;
    this.#opened = undefined;
    if (opened) await this.#options.close(opened.port, opened.listening);
    else if (this.#wanted) await this.#open(this.#wanted);
  }

  async #open(port: TenantPort): Promise<void> {
    const { open, events } = this.#options;
    try {
      this.#opened = { port, listening: await open(port, withoutCertificates(events)) };
      this.problem = undefined;
    } catch (error) {
      if (!this.#stopped && same(port, this.#wanted)) this.#failed(port, error);
    }
  }

  #failed({ tenant, rule, port, unixSocket }: TenantPort, error: unknown): void {
    const { of, events, clock = systemClock } = this.#options;
    const what = port === undefined ? `unix socket ${unixSocket}` : `port ${port}`;
    const problem = `${rule}: ${of} of tenant ${tenant} cannot connect to its ${what}: ${inWords(error)}`;
    if (problem !== this.problem) events.emit('tenants:failure', problem, undefined);
    this.problem = problem;
    this.#cancelRetry = clock.after(PLANE.tenantPortRetryMs, () => {
      this.#cancelRetry = undefined;
      void this.settle(this.#wanted);
    });
  }

  #forgetFailure(): void {
    this.#cancelRetry?.();
    this.#cancelRetry = undefined;
    this.problem = undefined;
  }
}

function same(one: TenantPort | undefined, other: TenantPort | undefined): boolean {
  return one?.tenant === other?.tenant && one?.port === other?.port && one?.unixSocket === other?.unixSocket;
}

/** Events of a tenant's own port, without those of its certificate: the metrics show when the program's own certificate expires. */
function withoutCertificates(events: PlaneEvents): PlaneEvents {
  const own = planeEvents();
  own.on('refused', (...args) => void events.emit('refused', ...args));
  own.on('fault', (...args) => void events.emit('fault', ...args));
  return own;
}
