// As a program, it does what `flushOnce` does, with its arguments as JSON: tests kill it at each of its steps.
import { fileURLToPath } from 'node:url';
import { Directory, Sync } from '@isthmus/tenants-sync';

/**
 * Writes tenants into a directory as a sync does that takes over what lies there.
 * @param cas by `NAMESPACE/NAME`: the CA of each tenant that there is. Others end at once
 */
export async function flushOnce(dir: string, cas: Readonly<Record<string, string>>): Promise<void> {
  const source = (full: string) => {
    const [namespace = '', name = ''] = full.split('/');
    const agents = [{ certificates: { ca: { secretRef: { name, key: 'ca.crt' } } } }];
    return { kind: 'Tenant', namespace, name, created: 0, generation: 1, atOnce: true, fields: { agents } } as const;
  };
  const sync = new Sync({
    directory: new Directory(dir),
    stores(_store, name) {
      const ca = cas[name];
      return ca === undefined ? undefined : { values: new Map([['ca.crt', ca]]), allows: [] };
    },
    sources: (name) => (name in cas ? [source(name)] : []),
    graceMs: 0,
    now: () => 0,
    changed(name, verdict) {
      if (verdict?.fault !== undefined) throw new Error(`${name}: ${verdict.fault}`);
    },
  });
  const found = (await sync.load()).map(({ namespace, name }) => `${namespace}/${name}`);
  for (const name of Object.keys(cas)) sync.changed(name);
  for (const name of found) if (!(name in cas)) sync.changed(name, source(name));
  await sync.flush();
}

const [, program, dir = '', given = '{}'] = process.argv;
if (program === fileURLToPath(import.meta.url)) await flushOnce(dir, JSON.parse(given));
