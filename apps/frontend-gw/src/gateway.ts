import { type Directory, lookups, type RouteTo, route, type Strategy, Suspects } from '@isthmus/directory';
import { faultOfSocketPath } from '@isthmus/flags';
import { type Gateway, type Tenancy, type TenantPort, TenantPorts } from '@isthmus/plane';
import { guarding, type TlsSettings, within } from '@isthmus/runtime';
import { type AdmissionState, socketsCheck } from '@isthmus/service';
import {
  anyoneOf,
  type CallerPort,
  Callers,
  type CallersOptions,
  DEFAULT_TENANT,
  type Listener,
} from '@isthmus/transport';
import {
  DialLimiter,
  GatewayTunnels,
  type NextHop,
  NotAuthorised,
  type Observation,
  PlaneEnded,
  type PlaneEvents,
  type ResumeOptions,
  type TunnelTable,
} from '@isthmus/tunnel';
import { leaveDraining, passedAttach } from './attach.ts';
import { GATEWAY } from './defaults.ts';
import { DirectDials, type DirectOptions } from './direct.ts';
import { type CallersTenancy, Identities } from './identities.ts';
import { gatewayAttach, gatewayDial } from './pipeline.ts';

export interface GatewayOptions
  extends Pick<CallersOptions, 'mode' | 'keepaliveTime' | 'proxyNetworks' | 'halfClosedMs'> {
  readonly callers: readonly CallerPort[];
  readonly tenancy?: Tenancy;
  /** Who callers are where there are no tenants and some show tokens. Unset: none does. */
  readonly callerTokens?: CallersTenancy;
  /** For tenants' own ports and unix sockets. */
  readonly ownPorts: OwnPorts;
  readonly strategies: readonly Strategy[];
  /** For texts. */
  readonly gatewayId: string;
  readonly zone: string;
  /** How long a dial may take, in milliseconds. */
  readonly dialTimeout: number;
  /** How long a dial waits while its tenant has no session, or none whose hub can be reached, in milliseconds. */
  readonly parkTimeout: number;
  /** How long a tunnel may be idle during a drain, in milliseconds. 0: for any time. */
  readonly drainIdleMs: number;
  /** What it may dial itself. */
  readonly direct: DirectOptions;
  /** Unset: tunnels end with what carries them. */
  readonly resume?: ResumeOptions;
  readonly directory: Directory;
  /** Returns the way to a hub, or undefined while there is none. */
  readonly nextHop: (hubId: string) => NextHop | undefined;
  /** Names this process to hubs and agents: 16 hexadecimal digits. */
  readonly instance: string;
  readonly observation: Observation;
  /** Those of this process. */
  readonly tunnels: Pick<TunnelTable, 'abortEach' | 'endIdle' | 'idle'>;
}

/** Runs a gateway: accepts callers, chooses a session for each dial, splices bytes. */
export async function gateway(options: GatewayOptions): Promise<Gateway> {
  const { observation, tunnels, tenancy, callerTokens, dialTimeout: timeout, zone, parkTimeout } = options;
  const { events } = observation;
  const suspects = new Suspects();
  const routing = { ...options, suspects };
  const routes = (to: RouteTo) => route(routing, to);
  const gatewayTunnels = options.resume && new GatewayTunnels({ ...routing, ...options.resume, route: routes });
  const limiter = new DialLimiter(tenancy?.limits);
  const { direct } = options;
  const directDials = direct.rules.length > 0 ? new DirectDials({ ...direct, tenancy, observation }) : undefined;
  const dial = gatewayDial({ ...routing, limiter, directDials, gatewayTunnels });
  const judges = tenancy ?? callerTokens;
  const identities = judges && new Identities(judges, events);
  const identifyCaller = identities?.identifyCaller ?? anyoneOf(DEFAULT_TENANT);
  const awaitDial = (of: string) => limiter.awaitDial(of);
  const attach = gatewayAttach({ ...routing, limiter, attach: passedAttach({ ...routing, route: routes }) });
  const held = leaveDraining({ ...routing, route: routes });
  const { identifyByToken } = identities ?? {};
  const who = { identities, identifyCaller, identifyByToken };
  const callers = new Callers({ ...options, ...who, dial, attach, held, awaitDial, events, timeout });
  let own: Awaited<ReturnType<typeof tenantCallers>> | undefined;
  let state: AdmissionState = 'open';
  let endsIdle: Disposable | undefined;
  const hide = () => {
    void own?.stop();
    return callers.hide();
  };
  const cut = () =>
    tunnels.abortEach(({ role }) => role === 'gateway', new PlaneEnded('the gateway stops', { by: 'gateway' }));
  const close = async () => {
    endsIdle?.[Symbol.dispose]();
    await own?.stop();
    // New callers are rejected, and earlier ones get an answer: no caller is reset in the middle of its request.
    await callers.stop(limiter.closed);
    const timer = setTimeout(cut, GATEWAY.callerGraceMs);
    await callers.endCalls(GATEWAY.callerGraceMs);
    clearTimeout(timer);
    cut();
    // The log still gets a line for each.
    await within(tunnels.idle(), GATEWAY.callerGraceMs);
    await callers.close();
  };
  try {
    for (const port of options.callers) {
      // Without tenants, every port is of the one that there is.
      const owner = { tenant: DEFAULT_TENANT, ...('path' in port.address && { unixSocket: port.address.path }) };
      await callers.open(shared(port, options), callerTokens && owner);
    }
    if (tenancy && identities)
      own = await tenantCallers({ ...options, tenancy, ports: options.ownPorts, callers, identities, events });
  } catch (error) {
    await close();
    throw error;
  }
  return {
    get addresses() {
      return callers.listeners.map(({ address }) => address);
    },
    get unopened() {
      return own?.problems ?? [];
    },
    routing: {
      tenant: DEFAULT_TENANT,
      zone,
      dialTimeout: timeout,
      parkTimeout,
      dial,
      events,
      strategies: options.strategies,
      lookups: (of, host) => lookups(options, { tenant: of, host }),
      route: (of, host) => routes({ tenant: of, host }),
      direct: (of, destination, caller) => directDials?.rule(of, destination, caller),
      policy: (of, destination, caller) => tenancy?.tenants.get(of)?.policy.verdict(destination, caller),
    },
    get admission() {
      return state;
    },
    get sockets() {
      return socketsCheck(callers.listeners);
    },
    get kept() {
      return gatewayTunnels?.kept;
    },
    use: (of) => limiter.use(of),
    holds: () => callers.holds(),
    leave() {
      if (state === 'open') state = 'leaving';
    },
    hide,
    async drain() {
      state = 'draining';
      endsIdle ??= tunnels.endIdle('gateway', options.drainIdleMs);
      void own?.stop();
      await callers.drain();
      await limiter.close();
    },
    close,
    cut,
  };
}

/** A port of all tenants shows each its certificate. Who issued a caller's is the tenant's to judge, and callers with tokens need none. */
function shared(port: CallerPort, { tenancy, callerTokens }: GatewayOptions): CallerPort {
  if (!port.tls || !(tenancy ?? callerTokens)) return port;
  return { ...port, asksOnly: true, ...(tenancy && { chooseTls: tenancy.chooseTls }) };
}

/** What the tenants' own ports and unix sockets share. */
interface OwnPorts {
  /** Address that the ports listen on. */
  readonly host: string;
  /** Shown by the ports of tenants without a certificate of their own. */
  readonly tls: TlsSettings;
  readonly deleteExisting: boolean;
}

export interface TenantCallersOptions {
  readonly tenancy: Tenancy;
  readonly ports: OwnPorts;
  readonly callers: Callers;
  readonly identities: Identities;
  readonly events: PlaneEvents;
}

/** Keeps the tenants' own ports and unix sockets as their files say. Resolves once each is open or has failed. */
export async function tenantCallers(options: TenantCallersOptions): Promise<TenantPorts<Listener>> {
  const { tenancy, callers, identities, events } = options;
  const ports = new TenantPorts<Listener>({
    tenancy,
    of: 'callers',
    open: (owner, portEvents) => callers.open({ ...portOf(owner, options), events: portEvents }, owner),
    async close(owner, listener) {
      const { rule, tenant, unixSocket, port } = owner;
      const what = unixSocket === undefined ? `port ${port}` : `unix socket ${unixSocket}`;
      await listener.stop();
      identities.endAll(owner, new NotAuthorised(`tenant ${tenant} has no ${what} any more`, { rule }));
      // The address is free for its next tenant. Handshakes that peers trickle would hold it until their deadline.
      guarding((error) => events.emit('fault', 'callers', what, error))(() => callers.close(listener))();
    },
    events,
  });
  await ports.look();
  return ports;
}

function portOf({ tenant, unixSocket, port = 0 }: TenantPort, { tenancy, ports }: TenantCallersOptions): CallerPort {
  const { host, deleteExisting } = ports;
  if (unixSocket !== undefined) {
    const fault = faultOfSocketPath(unixSocket);
    if (fault !== undefined) throw new Error(fault);
    return { address: { path: unixSocket, deleteExisting } };
  }
  const { tls } = ports;
  if (!tls.cert && !tenancy.tenants.get(tenant)?.file.server)
    throw new Error('there is no certificate to show: add server to the file, or set --server-cert');
  const instead = tenancy.certificateOf(tenant);
  return { address: { host, port }, tls, instead, asksOnly: true, chooseTls: tenancy.chooseTls };
}
