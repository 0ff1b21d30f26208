// Text files that go along with a message.

const BYTES_MAX = 1 << 20;
const FILES_MAX = 10;

// { name, text }; throws a sentence for the user.
export async function readAttachment(file, n_attached) {
  if (n_attached >= FILES_MAX) throw new Error(`No more than ${FILES_MAX} files go with one message.`);
  if (file.size > BYTES_MAX) {
    const size = (file.size / (1 << 20)).toFixed(1);
    throw new Error(`${file.name} has ${size} MB; no more than ${BYTES_MAX >> 20} MB can be attached.`);
  }
  const bytes = new Uint8Array(await file.arrayBuffer());
  const text = decoded(bytes);
  if (text === null) throw new Error(`${file.name} is not a text file; only text can be attached.`);
  if (text.trim() === "") throw new Error(`${file.name} is empty.`);
  // The name stands in backticks.
  return { name: file.name.replace(/[`\n\r]/g, "_"), text: text.replace(/\r\n/g, "\n") };
}

// UTF-8, or UTF-16 with its mark; null for anything else.
function decoded(bytes) {
  const mark = (bytes[0] << 8) | bytes[1];
  const encoding = { 0xfffe: "utf-16le", 0xfeff: "utf-16be" }[mark] ?? "utf-8";
  try {
    const text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

export function sizeText(text) {
  if (text.length >= 1024) return `${Math.round(text.length / 1024)} KB`;
  return text.length === 1 ? "1 character" : `${text.length} characters`;
}
