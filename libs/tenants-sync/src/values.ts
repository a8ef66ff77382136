import { type KubeObject, objectName } from '@isthmus/kube';
import { getOrPut } from '@isthmus/runtime';
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
  /** Why some of its keys or of these namespaces are not kept, if some are not. */
  readonly unkept?: string;
}

/** What is kept, in bytes of values, and in keys and names of namespaces. */
interface Held {
  bytes: number;
  entries: number;
}

/** Keeps the values of secrets or config maps. */
export class ValueKeeper {
  readonly #kind: 'secret' | 'config map';
  readonly #keys: readonly string[] | undefined;
  /** By namespace and name. */
  readonly #held = new Map<string, Held>();
  /** By namespace. */
  readonly #totals = new Map<string, Held>();

  /** @param keys the only ones that are kept; default all */
  constructor(kind: 'secret' | 'config map', keys?: readonly string[]) {
    this.#kind = kind;
    this.#keys = keys;
  }

  keep(object: ValuesObject): Values {
    const { namespace = '', annotations = {} } = object.metadata;
    const name = objectName(object);
    this.forget(name);
    const total = getOrPut(this.#totals, namespace, () => ({ bytes: 0, entries: 0 }));
    const held = { bytes: 0, entries: 0 };
    const fits = (bytes: number) => total.bytes + held.bytes + bytes <= SYNC.namespaceBytes;
    const entriesLeft = () => SYNC.namespaceEntries - total.entries - held.entries;
    const allowing = annotations[ALLOW_TENANTS_OF] ?? '';
    const named = allowing.split(',');
    const allows = fits(allowing.length) ? named.slice(0, entriesLeft()).map((each) => each.trim()) : [];
    let whole = allowing === '' || allows.length === named.length;
    held.bytes += allows.length === 0 ? 0 : allowing.length;
    held.entries += allows.length;
    const values = new Map<string, string | Error>();
    const keep = (key: string, value: Buffer) => {
      if (this.#keys && !this.#keys.includes(key)) return;
      if (entriesLeft() <= 0) {
        whole = false;
        return;
      }
      held.entries++;
      if (value.length > SYNC.valueBytes) {
        values.set(key, new Error(`it has ${value.length} bytes: at most ${SYNC.valueBytes} are read`));
      } else if (!fits(value.length)) {
        values.set(key, new Error(`what is labelled in ${namespace} has more than ${SYNC.namespaceBytes} bytes`));
      } else {
        held.bytes += value.length;
        values.set(key, value.toString('latin1'));
      }
    };
    const encoded = this.#kind === 'secret' ? object.data : object.binaryData;
    for (const [key, value] of Object.entries(encoded ?? {})) keep(key, Buffer.from(value, 'base64'));
    if (this.#kind === 'config map')
      for (const [key, value] of Object.entries(object.data ?? {})) keep(key, Buffer.from(value));
    this.#held.set(name, held);
    total.bytes += held.bytes;
    total.entries += held.entries;
    if (whole) return { values, allows };
    const { namespaceEntries, namespaceBytes } = SYNC;
    const share = `${namespaceEntries} keys and allowed namespaces or ${namespaceBytes} bytes`;
    return { values, allows, unkept: `what is labelled in ${namespace} has more than ${share}` };
  }

  /** What it had of its namespace's share is free again. @param name `NAMESPACE/NAME` */
  forget(name: string): void {
    const [namespace = ''] = name.split('/');
    const [held, total] = [this.#held.get(name), this.#totals.get(namespace)];
    if (!held || !total) return;
    this.#held.delete(name);
    total.bytes -= held.bytes;
    total.entries -= held.entries;
    if (total.entries === 0) this.#totals.delete(namespace);
  }
}
