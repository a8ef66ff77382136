import type { Principal } from '@isthmus/tunnel';
import type { TenantFile } from './tenant-file/schema.ts';

/** Credentials that a tenant's file denies, although they are valid. */
export interface Denials {
  /**
   * Where the file denies one: `deny.agents[0]`; undefined if it does not.
   * @param serials of its certificates
   */
  place(who: Pick<Principal, 'role' | 'name'>, serials: readonly string[]): string | undefined;
}

/** Of most tenants. */
const NOTHING: Denials = { place: () => undefined };

export function denialsOf(file: TenantFile['deny']): Denials {
  if (!file) return NOTHING;
  const { agents = [], callers = [], serials = [] } = file;
  const names = { agent: placesOf('agents', agents), caller: placesOf('callers', callers) };
  const bySerial = placesOf('serials', serials.map(canonical));
  return {
    place({ role, name }, shown) {
      const serial = shown.find((each) => bySerial.has(each));
      return names[role].get(name) ?? (serial === undefined ? undefined : bySerial.get(serial));
    },
  };
}

function placesOf(list: string, values: readonly string[]): Map<string, string> {
  return new Map(values.map((value, index) => [value, `deny.${list}[${index}]`]));
}

/** As certificates' fields have it. */
function canonical(serial: string): string {
  return serial
    .replaceAll(':', '')
    .replace(/^0+(?=.)/, '')
    .toUpperCase();
}
