import { type Clock, systemClock } from '@isthmus/runtime';

/** How often to look whether the token was rotated, in milliseconds. The kubelet does so when a fifth of its life is left. */
const LOOK_EVERY = 2000;

/**
 * Without an answer, a token is sent again after a random time within these, in milliseconds: the hub could not ask the API server, perhaps,
 * or a herd has used up the tenant's `limits.renewalsPerSecond`, and would come back as one. A hub takes none for 20 s after a refusal.
 */
const AGAIN_AFTER = { least: 22_000, most: 45_000 } as const;

export interface TokenRenewalOptions {
  /** The token that the link began with. */
  readonly first: string | undefined;
  /** Reads the token. May throw. */
  readonly read: () => string | undefined;
  readonly send: (token: string) => void;
  readonly clock?: Clock;
}

/** Sends a hub the tokens that come after the first one, so that the tunnels of a link outlive the token that it began with. */
export class TokenRenewal implements Disposable {
  readonly #options: TokenRenewalOptions;
  readonly #clock: Clock;
  #cancel: () => void;
  /** What the hub has taken. */
  #taken: string | undefined;
  #sent: { readonly token: string; readonly again: number } | undefined;

  constructor(options: TokenRenewalOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#taken = options.first;
    this.#cancel = this.#lookLater();
  }

  /** Call when the hub has taken the token that was sent last. */
  taken(): void {
    this.#taken = this.#sent?.token;
  }

  [Symbol.dispose](): void {
    this.#cancel();
  }

  #lookLater(): () => void {
    return this.#clock.after(LOOK_EVERY, () => {
      this.#cancel = this.#lookLater();
      this.#look();
    });
  }

  #look(): void {
    const token = this.#read();
    if (token === undefined || token === this.#taken) return;
    const now = this.#clock.now();
    // An answer does not say to which token it is, so one token is on its way at a time.
    if (this.#sent && this.#sent.token !== this.#taken && now < this.#sent.again) return;
    const { least, most } = AGAIN_AFTER;
    this.#sent = { token, again: now + least + this.#clock.random() * (most - least) };
    this.#options.send(token);
  }

  /** A file that is away for a moment is read again soon. One that stays away stops the next connection, which says so. */
  #read(): string | undefined {
    try {
      return this.#options.read();
    } catch {
      return undefined;
    }
  }
}
