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

/** Keeps the values of secrets or config maps. */
export class ValueKeeper {
  readonly #kind: 'secret' | 'config map';
  readonly #keys: readonly string[] | undefined;
  /** Bytes that are kept, by namespace and name. */
  readonly #held = new Map<string, Map<string, number>>();

  /** @param keys the only ones that are kept; default all */
  constructor(kind: 'secret' | 'config map', keys?: readonly string[]) {
    this.#kind = kind;
    this.#keys = keys;
  }

  keep(object: ValuesObject): Values {
    const { namespace = '', annotations = {} } = object.metadata;
    const name = objectName(object);
    const allows = (annotations[ALLOW_TENANTS_OF] ?? '').split(',').map((each) => each.trim());
    this.forget(name);
    const ofNamespace = this.#held.get(namespace) ?? new Map<string, number>();
    let others = 0;
    for (const bytes of ofNamespace.values()) others += bytes;
    let own = 0;
    const values = new Map<string, string | Error>();
    const keep = (key: string, value: Buffer) => {
      if (this.#keys && !this.#keys.includes(key)) return;
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
    const encoded = this.#kind === 'secret' ? object.data : object.binaryData;
    for (const [key, value] of Object.entries(encoded ?? {})) keep(key, Buffer.from(value, 'base64'));
    if (this.#kind === 'config map')
      for (const [key, value] of Object.entries(object.data ?? {})) keep(key, Buffer.from(value));
    this.#held.set(namespace, ofNamespace.set(name, own));
    return { values, allows };
  }

  /** What it had of its namespace's share is free again. @param name `NAMESPACE/NAME` */
  forget(name: string): void {
    const [namespace = ''] = name.split('/');
    const ofNamespace = this.#held.get(namespace);
    ofNamespace?.delete(name);
    if (ofNamespace?.size === 0) this.#held.delete(namespace);
  }
}
