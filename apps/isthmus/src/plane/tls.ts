import { readFileSync } from 'node:fs';
import type { AdminClientTls } from '@isthmus/admin/client';
import { messageOf, usage } from '../exit.ts';

export interface TlsFiles {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** Reads the files that the options name. Returns undefined without them; admin ports are then asked in plain text. */
export function readTls({ ca, cert, key }: TlsFiles): AdminClientTls | undefined {
  if ((cert === undefined) !== (key === undefined)) throw usage('--cert and --key go together: give both, or none');
  if (ca === undefined) {
    if (cert === undefined) return undefined;
    throw usage('--cert has no effect without --ca, the CA certificates of the admin ports');
  }
  return {
    ca: read('--ca', ca),
    ...(cert !== undefined && key !== undefined && { cert: read('--cert', cert), key: read('--key', key) }),
  };
}

function read(option: string, path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw usage(`${option}: cannot read ${path}: ${messageOf(error)}`);
  }
}
