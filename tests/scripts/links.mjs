// Checks the documentation, without the network:
//
// - every relative link of a tracked .md file leads to a tracked file or directory, and its anchor to a heading;
// - every page of docs/ that a source file names ("docs/FOLDER/PAGE.md#anchor") exists;
// - every path of this repository in backticks exists (not in CHANGELOG.md and kept results, which name older paths);
// - docs/SUMMARY.md lists every page of docs/.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { posix } from "node:path";

process.chdir(new URL("../..", import.meta.url).pathname);
const files = execFileSync("git", ["ls-files", "-z"], { encoding: "utf8", maxBuffer: 1 << 26 }).split("\0").filter(Boolean);
const tracked = new Set(files);
const directories = new Set(files.flatMap(parents));
const pages = new Map(files.filter((file) => file.endsWith(".md")).map((file) => [file, readFileSync(file, "utf8")]));
const anchors = new Map([...pages].map(([file, page]) => [file, anchorsOf(page)]));
const problems = [];
const PLACEHOLDERS = /\b(FOLDER|NAME|PAGE|SCENARIO)\b/;

for (const [file, page] of pages) {
    eachLine(page, (line, number, isCode) => {
        if (!isCode) checkLinks(file, line, number);
        if (!isCode && !isRecord(file)) checkPaths(file, line, number);
    });
}
for (const file of files.filter((file) => !isRecord(file) && !file.startsWith("tests/fuzz/corpus/"))) {
    eachLine(read(file), (line, number) => checkMentions(file, line, number));
}
for (const file of pages.keys()) {
    const link = file.replace(/^docs\//, "");
    if (file.startsWith("docs/") && link !== "SUMMARY.md" && !pages.get("docs/SUMMARY.md").includes(`(${link})`)) {
        problems.push(`docs/SUMMARY.md: ${link} is missing`);
    }
}
if (problems.length) {
    console.error(problems.join("\n"));
    console.error(`links.mjs: ${problems.length} problems`);
    process.exit(1);
}

function checkLinks(file, line, number) {
    const links = line.replace(/`[^`]*`/g, "``").matchAll(/\]\(([^)\s]+)\)|^\[[^\]]+\]:\s*(\S+)/g);
    for (const [, inline, reference] of links) {
        const link = inline ?? reference;
        if (/^[a-z]+:/.test(link)) continue;
        const [path, anchor] = link.split("#");
        check(file, number, path ? posix.join(posix.dirname(file), path) : file, anchor);
    }
}

function checkMentions(file, line, number) {
    for (const [, path, anchor] of line.matchAll(/(?<![\w./-])(docs\/[\w/.-]+\.md)(?:#([\w-]+))?/g)) {
        check(file, number, path, anchor);
    }
}

function checkPaths(file, line, number) {
    for (const [, path] of line.matchAll(/`([\w-]+\/[\w./-]*)`/g)) {
        const top = path.split("/")[0];
        if (directories.has(top) && !isGenerated(path)) check(file, number, path);
    }
}

function check(file, number, path, anchor) {
    const target = path.replace(/\/$/, "");
    if (PLACEHOLDERS.test(path)) return;
    if (!tracked.has(target) && !directories.has(target)) {
        problems.push(`${file}:${number}: ${path} does not exist`);
    } else if (anchor && !anchors.get(target)?.has(anchor)) {
        problems.push(`${file}:${number}: ${path} has no heading #${anchor}`);
    }
}

// Older paths are right in these: they describe what was.
function isRecord(file) {
    return file === "CHANGELOG.md" || file.startsWith("docs/research/results/");
}

function isGenerated(path) {
    return /(^|\/)(dist|node_modules|run-make-setup-first)(\/|$)/.test(path);
}

function read(file) {
    try {
        return readFileSync(file, "utf8");
    } catch {
        return ""; // deleted, or a link to a directory
    }
}

function eachLine(page, visit) {
    let isCode = false;
    page.split("\n").forEach((line, index) => {
        const isFence = /^\s*```/.test(line);
        visit(line, index + 1, isCode || isFence);
        if (isFence) isCode = !isCode;
    });
}

// The anchors that GitHub and mdBook give to headings.
function anchorsOf(page) {
    const found = new Set();
    eachLine(page, (line, _number, isCode) => {
        const heading = isCode ? null : /^#{1,6}\s+(.*?)\s*#*$/.exec(line);
        if (!heading) return;
        const text = heading[1].replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").toLowerCase();
        const anchor = text.replace(/[^\p{L}\p{N}_\- ]/gu, "").replaceAll(" ", "-");
        let unique = anchor;
        for (let count = 1; found.has(unique); count++) unique = `${anchor}-${count}`;
        found.add(unique);
    });
    return found;
}

function parents(file) {
    const found = [];
    for (let path = posix.dirname(file); path !== "."; path = posix.dirname(path)) found.push(path);
    return found;
}
