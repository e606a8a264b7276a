import { defineConfig } from "vite";

// The report's script and style, as two files that report.js puts into the HTML.
export default defineConfig({
  build: {
    outDir: "dist/report",
    emptyOutDir: true,
    target: "es2022",
    lib: { entry: "src/report/client/main.ts", formats: ["iife"], name: "millraceReport", fileName: () => "client.js", cssFileName: "client" },
  },
});
