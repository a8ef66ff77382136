import type { KubeObject } from '@isthmus/kube';
import { SYNC } from './defaults.ts';
import { ALLOW_TENANTS_OF } from './kinds.ts';
import type { KnownOptions } from './objects.ts';

/** A secret, or a config map. */
export interface ValuesObject extends KubeObject {
  /** Of a secret in base64, of a config map as it is. */
  readonly data?: Readonly<Record<string, string>>;
  readonly binaryData?: Readonly<Record<string, string>>;
}

/** What is kept of one. */
export interface Values {
  /** By key: the bytes, one a character. */
  readonly values: ReadonlyMap<string, string>;
  /** Namespaces beside its own whose tenants may name it; `*` for all. */
  readonly allows: readonly string[];
  /** Why some of its values or of these namespaces are not kept, if some are not. */
  readonly unkept?: string;
}

/** Keeps the values of secrets or config maps. @param keys the only ones that are kept; default all */
export function valueKeeper(
  kind: 'secret' | 'config map',
  keys?: readonly string[],
): KnownOptions<ValuesObject, Values>['keep'] {
  return (object, known, part) => {
    const isSecret = kind === 'secret';
    const encoded = (isSecret ? object.data : object.binaryData) ?? {};
    // Of each machine of a cluster there is a secret with the cluster's label, too.
    if (keys?.every((key) => encoded[key] === undefined)) return undefined;
    const allowing = object.metadata.annotations?.[ALLOW_TENANTS_OF] ?? '';
    const named = allowing.split(',').map((each) => each.trim());
    const needed = allowing !== '' || !known;
    const allows = part.take(allowing.length, named.length, needed) ? named : [];
    if (allows.length === 0 && !known && !part.take(0, 1)) return undefined;
    const values = new Map<string, string>();
    let large: string | undefined;
    const keep = (key: string, value: string, encoding: 'base64' | 'utf8') => {
      if (keys && !keys.includes(key)) return;
      const bytes = Buffer.byteLength(value, encoding);
      if (bytes > SYNC.valueBytes)
        large = `${JSON.stringify(key)}: it has ${bytes} bytes: at most ${SYNC.valueBytes} are read`;
      else if (part.take(bytes, 1)) values.set(key, Buffer.from(value, encoding).toString('latin1'));
    };
    for (const [key, value] of Object.entries(encoded)) keep(key, value, 'base64');
    if (!isSecret) for (const [key, value] of Object.entries(object.data ?? {})) keep(key, value, 'utf8');
    const unkept = large ?? part.short;
    return { values, allows, ...(unkept !== undefined && { unkept }) };
  };
}
