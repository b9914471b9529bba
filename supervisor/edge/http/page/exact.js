/* JSON with all its integers. A number of JavaScript is exact up to 2^53; a larger one is read as a
   BigInt where the browser tells how it was written, and every `JSON.stringify` writes it so. */

if (JSON.rawJSON)
  BigInt.prototype.toJSON = function () {
    return JSON.rawJSON(String(this));
  };

const LONG = /\d{16}/;
const INTEGER = /^-?\d+$/;

/** Parse JSON; an integer that this browser has rounded becomes what `rounded(value)` returns. */
export function parse(text, rounded = (value) => value) {
  if (!LONG.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) => {
    if (!Number.isInteger(value) || Number.isSafeInteger(value)) return value;
    if (context?.source === undefined) return rounded(value);
    return INTEGER.test(context.source) ? BigInt(context.source) : value;
  });
}
