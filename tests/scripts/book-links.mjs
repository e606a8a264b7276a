// A preprocessor of mdBook (docs/book.toml). It replaces links to files outside docs/, which the book does not contain,
// by their text and path, and makes links to README.md lead to index.html, as mdBook names it.
import { posix } from "node:path";
import { text } from "node:stream/consumers";

if (process.argv[2] === "supports") process.exit(0);

const [, book] = JSON.parse(await text(process.stdin));
for (const item of book.items) rewrite(item);
process.stdout.write(JSON.stringify(book));

function rewrite(item) {
    const chapter = item.Chapter;
    if (!chapter) return;
    if (chapter.path) chapter.content = withBookLinks(chapter.content, posix.dirname(chapter.path));
    for (const child of chapter.sub_items) rewrite(child);
}

function withBookLinks(content, directory) {
    return content.replace(/\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)/g, (link, label, target, anchor = "") => {
        if (/^[a-z]+:/.test(target)) return link;
        const path = posix.join("docs", directory, target);
        if (path.startsWith("docs/")) return `[${label}](${target.replace(/README\.md$/, "index.md")}${anchor})`;
        const name = label.replaceAll("`", "");
        return path.endsWith(name) ? `\`${path}\`` : `${label} (\`${path}\`)`;
    });
}
