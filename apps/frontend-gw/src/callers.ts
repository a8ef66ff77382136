import { faultOfSocketPath } from '@isthmus/flags';
import { type Tenancy, type TenantPort, TenantPorts } from '@isthmus/plane';
import { guarding, type TlsSettings } from '@isthmus/runtime';
import type { CallerPort, Callers, Listener } from '@isthmus/transport';
import { NotAuthorised, type PlaneEvents } from '@isthmus/tunnel';
import type { Identities } from './identities.ts';

/** What the tenants' own ports and unix sockets share. */
export interface OwnPorts {
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
