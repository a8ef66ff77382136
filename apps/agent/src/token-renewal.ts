/** How often to look whether the token was rotated, in milliseconds. The kubelet does so when a fifth of its life is left. */
const LOOK_EVERY = 2000;

/** After this time without an answer, a token is sent again, in milliseconds: the hub could not ask the API server, perhaps. */
const AGAIN_AFTER = 30_000;

export interface TokenRenewalOptions {
  /** The token that the link began with. */
  readonly first: string | undefined;
  /** Reads the token. May throw. */
  readonly read: () => string | undefined;
  readonly send: (token: string) => void;
  /** Milliseconds; for tests. */
  readonly every?: number;
}

/** Sends a hub the tokens that come after the first one, so that the tunnels of a link outlive the token that it began with. */
export class TokenRenewal implements Disposable {
  readonly #options: TokenRenewalOptions;
  readonly #timer: NodeJS.Timeout;
  /** What the hub has taken. */
  #taken: string | undefined;
  #sent: { readonly token: string; readonly at: number } | undefined;

  constructor(options: TokenRenewalOptions) {
    this.#options = options;
    this.#taken = options.first;
    this.#timer = setInterval(() => this.#look(), options.every ?? LOOK_EVERY).unref();
  }

  /** Call when the hub has taken the token that was sent last. */
  taken(): void {
    this.#taken = this.#sent?.token;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const token = this.#read();
    if (token === undefined || token === this.#taken) return;
    const now = performance.now();
    // An answer does not say to which token it is, so one token is on its way at a time.
    if (this.#sent && this.#sent.token !== this.#taken && now - this.#sent.at < AGAIN_AFTER) return;
    this.#sent = { token, at: now };
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
