import { type KubeObject, objectName } from '@isthmus/kube';
import { SYNC } from './defaults.ts';
import { ALLOW_TENANTS_OF } from './kinds.ts';

/** A secret, or a config map. */
export interface ValuesObject extends KubeObject {
  /** Of a secret in base64, of a config map as it is. */
  readonly data?: Readonly<Record<string, string>>;
  readonly binaryData?: Readonly<Record<string, string>>;
}

/** What is kept of one. */
export interface Values {
  /** By key: the bytes, one a character. A fault where they are not kept. */
  readonly values: ReadonlyMap<string, string | Error>;
  /** Namespaces beside its own whose tenants may name it; `*` for all. */
  readonly allows: readonly string[];
}

/** Returns what keeps the values of secrets or config maps. @param keys the only ones that are kept; default all */
export function valueKeeper(kind: 'secret' | 'config map', keys?: readonly string[]): (object: ValuesObject) => Values {
  /** By namespace and name. */
  const held = new Map<string, Map<string, number>>();
  return (object) => {
    const { namespace = '', annotations = {} } = object.metadata;
    const name = objectName(object);
    const allows = (annotations[ALLOW_TENANTS_OF] ?? '').split(',').map((each) => each.trim());
    const ofNamespace = held.get(namespace) ?? new Map<string, number>();
    held.set(namespace, ofNamespace);
    ofNamespace.delete(name);
    let others = 0;
    for (const bytes of ofNamespace.values()) others += bytes;
    let own = 0;
    const values = new Map<string, string | Error>();
    const encoded = kind === 'secret' ? object.data : object.binaryData;
    const keep = (key: string, value: Buffer) => {
      if (keys && !keys.includes(key)) return;
      const most = Math.min(SYNC.valueBytes, SYNC.namespaceBytes - others - own);
      if (value.length > SYNC.valueBytes) {
        values.set(key, new Error(`it has ${value.length} bytes: at most ${SYNC.valueBytes} are read`));
      } else if (value.length > most) {
        values.set(key, new Error(`what is labelled in ${namespace} has more than ${SYNC.namespaceBytes} bytes`));
      } else {
        own += value.length;
        values.set(key, value.toString('latin1'));
      }
    };
    for (const [key, value] of Object.entries(encoded ?? {})) keep(key, Buffer.from(value, 'base64'));
    if (kind === 'config map')
      for (const [key, value] of Object.entries(object.data ?? {})) keep(key, Buffer.from(value));
    ofNamespace.set(name, own);
    return { values, allows };
  };
}
