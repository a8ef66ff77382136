import { readFileSync } from 'node:fs';
import type { Flags } from './runtime.ts';

/** Shorter texts would be found by chance. */
const MIN_SECRET = 7;

/** Flags that name a file with a secret: private keys, tokens, kubeconfigs. */
const SECRET_FILES = /(^|-)key$|token-path$|^kubeconfig$/;

/** Flags whose value is a URL that may hold a password. */
const SECRET_URLS = /-url$/;

/** A redacted token is no secret any more. */
const BEARER = /Bearer (?!\[redacted\])\S/;

const PRIVATE_KEY = /-----BEGIN [A-Z ]*PRIVATE KEY-----/;

/** What must not appear in the output of a program: what its flags hold or name, and what looks like a secret. */
export class Secrets {
  readonly #flags: Flags;
  readonly #texts = new Set<string>();

  constructor(flags: Flags) {
    this.#flags = flags;
    this.look();
  }

  /** Reads the files again, since some may have been replaced. */
  look(): void {
    for (const [flag, value] of Object.entries(this.#flags)) {
      if (SECRET_FILES.test(flag)) this.#addFile(String(value ?? ''));
      else if (SECRET_URLS.test(flag)) this.#addUrl(String(value ?? ''));
    }
  }

  in(line: string): boolean {
    if (BEARER.test(line) || PRIVATE_KEY.test(line)) return true;
    for (const text of this.#texts) if (line.includes(text)) return true;
    return false;
  }

  #addFile(path: string): void {
    let text: string;
    try {
      text = readFileSync(path, 'utf8');
    } catch {
      // A flag may name a file that does not exist: some tests are about that.
      return;
    }
    const body = /-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END/s.exec(text)?.[1];
    const token = /^\s*token:\s*(\S+)/m.exec(text)?.[1];
    if (body) for (const line of body.split('\n')) this.#add(line.trim());
    else if (token) this.#add(token);
    else if (!text.includes('-----BEGIN') && !text.includes('\napiVersion')) this.#add(text.trim());
  }

  #addUrl(url: string): void {
    const passwords = [/:\/\/[^\s/@:]*:([^\s@]*)@/g, /password=([^&\s]*)/g].flatMap((each) => [...url.matchAll(each)]);
    for (const [, password = ''] of passwords) {
      this.#add(password);
      this.#add(decoded(password));
    }
  }

  #add(text: string): void {
    if (text.length >= MIN_SECRET) this.#texts.add(text);
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
