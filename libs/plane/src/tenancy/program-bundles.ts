import { MAX_CREDENTIAL_FILE, TrustSet } from '@isthmus/admission';
import type { PlaneEvents, Principal } from '@isthmus/tunnel';
import { type Content, readIfChanged } from './file-content.ts';

/** How often the files are checked for changes, in milliseconds. */
const POLL_MS = 4000;

type Role = Principal['role'];

const CERTIFICATE_PLACES = { agent: 'agents', caller: 'callers' } as const;

export interface ProgramBundlesOptions {
  /** Paths of the CA bundles; empty: there is none. */
  readonly paths: Readonly<Record<Role, string>>;
  /** Called when one of them has changed. */
  readonly changed: () => void;
  /** Gets `certificate:failure` for a file that cannot be used. */
  readonly events: PlaneEvents;
  /** How often the files are checked for changes, in milliseconds; default 4000. */
  readonly pollMs?: number | undefined;
}

/** Follows the program's own CA bundles (--cluster-ca-cert, --server-ca-cert). While a file cannot be used, its last good bundle stays in force. */
export class ProgramBundles {
  readonly #options: ProgramBundlesOptions;
  readonly #read: { [R in Role]?: Content<TrustSet> } = {};
  readonly #reported: { [R in Role]?: string } = {};
  readonly #timer: NodeJS.Timeout;

  /** @throws Error if one cannot be used */
  constructor(options: ProgramBundlesOptions) {
    this.#options = options;
    for (const role of ['agent', 'caller'] as const) this.#look(role);
    this.#timer = setInterval(() => this.look(), options.pollMs ?? POLL_MS).unref();
  }

  of(role: Role): TrustSet | undefined {
    return this.#read[role]?.value;
  }

  look(): void {
    const before = { ...this.#read };
    for (const role of ['agent', 'caller'] as const) this.#lookAgain(role);
    if (before.agent !== this.#read.agent || before.caller !== this.#read.caller) this.#options.changed();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #look(role: Role): void {
    const path = this.#options.paths[role];
    if (path === '') return;
    const read = (content: Buffer) => new TrustSet(content.toString('latin1'));
    const before = this.#read[role];
    const now = readIfChanged(path, MAX_CREDENTIAL_FILE, before, read);
    this.#read[role] = now;
    if (now === before) return;
    for (const each of now.value.skipped) this.#tell(role, `${each}: the others are used, this one is not`);
  }

  #lookAgain(role: Role): void {
    try {
      this.#look(role);
      this.#reported[role] = '';
    } catch (error) {
      const { message } = error as Error;
      const known = this.#reported[role] === message;
      this.#reported[role] = message;
      if (!known) this.#tell(role, message);
    }
  }

  #tell(role: Role, message: string): void {
    const { paths, events } = this.#options;
    events.emit('certificate:failure', CERTIFICATE_PLACES[role], new Error(`${paths[role]}: ${message}`));
  }
}
