import { type AttachAnswer, type AttachPosition, AttachRefused, type Carrier, ENDED_TEXT } from './carrier.ts';
import { Half } from './half.ts';

/** The half beside the destination's socket. It waits until the gateway's half attaches a new carrier. */
export class AgentHalf extends Half {
  /** A gateway that is alive attaches again at once, or, on a busy machine, before its links would count as silent. */
  protected override get patienceMs(): number {
    return 2500;
  }

  /** The number of the last attach. */
  #number = 0;
  /** Why the tunnel ended, if no carrier was there to tell the gateway. */
  #reason: Error | undefined;

  /**
   * Goes on with a new carrier.
   * @param accept sends the answer. Nothing else may leave on the carrier before it
   * @throws AttachRefused. The half then stays as it was
   */
  attach(request: AttachPosition, accept: (answer: AttachAnswer) => Carrier): void {
    this.#check(request);
    this.#number = request.number;
    const { position, state } = this;
    const carrier = accept({ ...position, from: this.sendingFrom(request.received) });
    this.adopt(carrier, request, position.received);
    if (state === 'complete') carrier.end();
  }

  protected override onDetached(): void {}

  protected override onAborted(reason: Error): void {
    this.#reason = reason;
  }

  protected override onComplete(): void {}

  #check(request: AttachPosition): void {
    const reason = this.#reason;
    if (reason)
      throw new AttachRefused(`${ENDED_TEXT}${reason.message}`, {
        final: true,
        ordinary: true,
        cause: reason,
      });
    if (this.state === 'gone') throw new AttachRefused('the tunnel has ended', { final: true, ordinary: true });
    const { number } = request;
    if (number <= this.#number)
      throw new AttachRefused(`attach ${number} came after attach ${this.#number}`, {
        final: false,
        ordinary: true,
      });
    const fault = this.faultOf(request);
    if (fault !== undefined)
      throw new AttachRefused(`the gateway's end of the tunnel is in disorder: ${fault}`, { final: true });
  }
}
