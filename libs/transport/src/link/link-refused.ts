/** The other side speaks HTTP/1.1 but refuses the link. `status` says whether it knows the protocol at all. */
export class LinkRefused extends Error {
  override readonly name = 'LinkRefused';
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}
