import { type Clock, systemClock } from '@isthmus/runtime';
import type { LinkClient } from '@isthmus/transport';
import { AGENT } from './defaults.ts';

/** A link whose hub takes fresh tokens. */
interface Renewal {
  readonly link: Pick<LinkClient, 'send' | 'closed' | 'destroy'>;
  /** What the hub has taken. */
  taken: string | undefined;
  sent?: { readonly token: string; readonly again: number };
}

/** The token of an agent, which is replaced from time to time. */
export class AgentToken {
  readonly #read: () => string | undefined;
  readonly #clock: Clock;
  readonly #renewals = new Set<Renewal>();

  /** @param read returns the token; while it cannot be read, the last one */
  constructor(read: () => string | undefined, clock: Clock = systemClock) {
    this.#read = read;
    this.#clock = clock;
  }

  /** What a connection presents now. @throws why it cannot be read, as long as it never could */
  get current(): string | undefined {
    return this.#read();
  }

  /** Call every `tokenLookMs`. Without a link, too, what reads the token notices that way what is wrong with its file. */
  look(): void {
    let token: string | undefined;
    try {
      token = this.#read();
    } catch {
      // The connection that needs it says so.
    }
    if (token === undefined) return;
    for (const renewal of this.#renewals) {
      try {
        this.#renew(renewal, token);
      } catch (error) {
        renewal.link.destroy(error as Error);
      }
    }
  }

  /**
   * Sends a hub the tokens that come after the first, so that the tunnels of a link outlive the token that it began with.
   * @returns what to call when the hub has taken the token that was sent last
   */
  follow(link: Renewal['link'], first: string | undefined): () => void {
    const renewal: Renewal = { link, taken: first };
    this.#renewals.add(renewal);
    void link.closed.then(() => this.#renewals.delete(renewal));
    return () => {
      renewal.taken = renewal.sent?.token;
    };
  }

  #renew(renewal: Renewal, token: string): void {
    const { link, taken, sent } = renewal;
    const now = this.#clock.now();
    // An answer does not say to which token it is, so one token is on its way at a time.
    if (token === taken || (sent && sent.token !== taken && now < sent.again)) return;
    const { tokenAgainLeastMs: least, tokenAgainMostMs: most } = AGENT;
    renewal.sent = { token, again: now + least + this.#clock.random() * (most - least) };
    link.send({ type: 'credential', token });
  }
}
