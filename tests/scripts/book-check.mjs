// book-check.mjs DIRECTORY: checks a built book. Each link to a file in it, and each anchor, must exist.
import { readFile, readdir } from "node:fs/promises";
import { posix } from "node:path";

const top = process.argv[2];
if (!top) {
    console.error("usage: book-check.mjs DIRECTORY");
    process.exit(64);
}

const entries = await readdir(top, { recursive: true, withFileTypes: true });
const files = new Set(
    entries.filter((entry) => entry.isFile()).map((entry) => posix.relative(top, posix.join(entry.parentPath, entry.name))),
);
// The print page repeats all others, with links of its own.
const pages = [...files].filter((file) => file.endsWith(".html") && file !== "print.html" && file !== "404.html");
const anchors = new Map();
const links = [];
for (const page of pages) {
    const html = (await readFile(posix.join(top, page), "utf8")).replace(/<script\b[\s\S]*?<\/script>|<!--[\s\S]*?-->/g, "");
    const values = (attribute) =>
        [...html.matchAll(new RegExp(`<[a-zA-Z][^>]*?\\s${attribute}="([^"]*)"`, "g"))].map((match) => decoded(match[1]));
    anchors.set(page, new Set([...values("id"), ...values("name")]));
    for (const target of [...values("href"), ...values("src")]) links.push([page, target]);
}

const problems = links.flatMap(([page, target]) => {
    const problem = problemOf(page, target);
    return problem ? [`${page}: ${target}: ${problem}`] : [];
});
for (const problem of new Set(problems)) console.error(problem);
console.log(`${pages.length} pages, ${links.length} links, ${new Set(problems).size} problems`);
process.exit(problems.length > 0 || pages.length === 0 ? 1 : 0);

function problemOf(page, target) {
    if (/^([a-z]+:|\/\/)/.test(target)) return null;
    const [path, anchor = ""] = target.split("#");
    let file = path === "" ? page : posix.normalize(posix.join(posix.dirname(page), decodeURIComponent(path)));
    if (file.endsWith("/") || file === ".") file = posix.join(file, "index.html");
    if (!files.has(file)) return "no such file in the book";
    if (anchor === "" || !anchors.has(file)) return null;
    return anchors.get(file).has(decodeURIComponent(anchor)) ? null : "no such anchor";
}

function decoded(text) {
    return text.replaceAll("&quot;", '"').replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}
