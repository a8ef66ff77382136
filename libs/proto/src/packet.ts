/**
 * The packets of the Konnectivity protocol. The union ties each type to its payload.
 *
 * On the wire (proto3, no package): `type` is field 1, the payload is one field of a oneof; `random` and `connectID`
 * are int64, which Go peers fill with full 63-bit values, so they are bigints from end to end.
 */
export type Packet =
  | { readonly type: 'DIAL_REQ'; readonly protocol: string; readonly address: string; readonly random: bigint }
  | { readonly type: 'DIAL_RSP'; readonly error: string; readonly connectID: bigint; readonly random: bigint }
  | { readonly type: 'CLOSE_REQ'; readonly connectID: bigint }
  | { readonly type: 'CLOSE_RSP'; readonly error: string; readonly connectID: bigint }
  | { readonly type: 'DATA'; readonly connectID: bigint; readonly error: string; readonly data: Uint8Array }
  | { readonly type: 'DIAL_CLS'; readonly random: bigint }
  | { readonly type: 'DRAIN' };

export type PacketType = Packet['type'];
