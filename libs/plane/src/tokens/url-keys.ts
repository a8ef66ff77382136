import { readTokenKeys, type TokenKeys } from '@isthmus/admission';
import { Backoff } from '@isthmus/runtime';
import { fetchKeys, type KeysUrl } from './fetch-keys.ts';
import { Semaphore } from './semaphore.ts';

/** How often a URL is fetched, in milliseconds. Issuers announce a new key an hour or more before they sign with it. */
const FETCH_EVERY_MS = 300_000;

/** The shortest time between two fetches of a URL, in milliseconds, even if many tokens name an unknown key. */
const FETCH_AGAIN_MS = 10_000;

/** How many fetches run at once, for all tenants. One that hangs keeps its place for 5 s. */
const fetches = new Semaphore(32);

/** The keys that an issuer publishes. While the newest cannot be fetched, the last good ones stay in force. */
export class UrlKeys {
  keys: TokenKeys = [];
  /** Why the newest keys cannot be used. Empty if they can. */
  problem = '';
  readonly #url: KeysUrl;
  readonly #now: () => number;
  readonly #backoff = new Backoff(FETCH_AGAIN_MS, FETCH_EVERY_MS);
  #text = '';
  #next = Number.NEGATIVE_INFINITY;
  #last = Number.NEGATIVE_INFINITY;
  #fetching: Promise<boolean> | undefined;

  constructor(url: KeysUrl, now: () => number = () => performance.now()) {
    this.#url = url;
    this.#now = now;
  }

  /** Fetches them if it is time. @returns whether the keys or the problem changed */
  async look(): Promise<boolean> {
    return this.#now() >= this.#next && this.#fetch();
  }

  /** Fetches them for a token with an unknown key id, unless that was done a moment ago. @returns as `look` */
  async seek(): Promise<boolean> {
    if (this.#fetching) return this.#fetching;
    return this.#now() >= this.#last + FETCH_AGAIN_MS && this.#fetch();
  }

  #fetch(): Promise<boolean> {
    this.#fetching ??= fetches
      .take(() => this.#try())
      .finally(() => {
        this.#last = this.#now();
        this.#fetching = undefined;
      });
    return this.#fetching;
  }

  async #try(): Promise<boolean> {
    const before = this.problem;
    try {
      const text = await fetchKeys(this.#url);
      const same = text === this.#text;
      if (!same) this.keys = await readTokenKeys(text);
      this.#text = text;
      this.problem = '';
      this.#backoff.reset();
      this.#next = this.#now() + FETCH_EVERY_MS * (0.9 + Math.random() / 10);
      return !same || before !== '';
    } catch (error) {
      this.problem = `${this.#url.url}: ${(error as Error).message}`;
      this.#next = this.#now() + this.#backoff.next();
      return this.problem !== before;
    }
  }
}
