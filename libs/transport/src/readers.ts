import { getOrPut, LruMap } from '@isthmus/runtime';
import { Readers } from '@isthmus/wire';
import { TRANSPORT } from './defaults.ts';

const tenants = new LruMap<string, Readers>(TRANSPORT.controlSenders);

/** All connections and tunnels of a tenant, which this process reads in turns with those of others. */
export function readersOf(tenant: string): Readers {
  return getOrPut(tenants, tenant, () => new Readers());
}
